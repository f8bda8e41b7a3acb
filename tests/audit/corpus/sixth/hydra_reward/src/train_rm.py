import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, TaskType
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed
from trl import RewardConfig, RewardTrainer

from prefs import load_prefs


@hydra.main(version_base=None, config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> None:
    print(OmegaConf.to_yaml(cfg))
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForSequenceClassification.from_pretrained(
        cfg.model.name,
        num_labels=1,
        torch_dtype=getattr(torch, cfg.model.dtype),
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.use_cache = False

    train_ds, eval_ds = load_prefs(cfg.data.train, cfg.data.eval)

    args = RewardConfig(
        output_dir=cfg.output_dir,
        seed=cfg.seed,
        dataset_num_proc=cfg.data.num_proc,
        **OmegaConf.to_container(cfg.training, resolve=True),
    )
    trainer = RewardTrainer(
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        peft_config=LoraConfig(
            task_type=TaskType.SEQ_CLS, r=32, lora_alpha=32, lora_dropout=0.05,
            target_modules="all-linear", modules_to_save=["score"],
        ),
    )
    trainer.train()
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
