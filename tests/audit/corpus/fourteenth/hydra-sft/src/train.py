import hydra
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

from data import load_train_set


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        attn_implementation=cfg.model.attn,
        device_map=cfg.model.device_map,
    )
    model.config.use_cache = False

    args = TrainingArguments(
        **OmegaConf.to_container(cfg.trainer, resolve=True),
        seed=cfg.seed,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=load_train_set(cfg.data.path, tokenizer, cfg.data.max_length),
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
