import hydra
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from blocks import build_blocks


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    args = TrainingArguments(seed=cfg.seed, **OmegaConf.to_container(cfg.trainer, resolve=True))
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    with args.main_process_first(desc="blocks"):
        train_set = build_blocks(cfg.data, tokenizer)

    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        attn_implementation=cfg.model.attn_implementation,
    )
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(**OmegaConf.to_container(cfg.model.lora)))
    model.print_trainable_parameters()

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_set,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
