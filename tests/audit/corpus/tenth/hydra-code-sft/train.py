import hydra
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


def build_dataset(cfg, tokenizer):
    dataset = load_dataset(cfg.path, split=cfg.split)

    def tokenize(batch):
        texts = [code + tokenizer.eos_token for code in batch[cfg.text_column]]
        return tokenizer(texts, truncation=True, max_length=cfg.max_length)

    return dataset.map(tokenize, batched=True, num_proc=cfg.num_proc, remove_columns=dataset.column_names)


def build_training_args(cfg):
    t = cfg.trainer
    return TrainingArguments(
        output_dir=cfg.output_dir,
        num_train_epochs=t.epochs,
        per_device_train_batch_size=t.micro_batch_size,
        gradient_accumulation_steps=t.grad_accum,
        learning_rate=t.learning_rate,
        lr_scheduler_type=t.scheduler,
        warmup_ratio=t.warmup_ratio,
        optim=t.optim,
        gradient_checkpointing=t.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        dataloader_num_workers=t.num_workers,
        logging_steps=t.logging_steps,
        save_steps=t.save_steps,
        save_total_limit=2,
        report_to="tensorboard",
        seed=cfg.seed,
    )


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, attn_implementation=cfg.model.attn_implementation
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=build_training_args(cfg),
        train_dataset=build_dataset(cfg.data, tokenizer),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
