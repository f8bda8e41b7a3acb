import logging

import hydra
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from callbacks import ThroughputCallback

log = logging.getLogger(__name__)


def get_tokenizer(cfg):
    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    if tok.pad_token is None:
        tok.add_special_tokens({"pad_token": "<|padding|>"})  # id 1 of the vocabulary
    return tok


def get_datasets(cfg, tokenizer):
    ds = load_dataset(cfg.data.path, split="train")

    def tokenize(batch):
        texts = [t + tokenizer.eos_token for t in batch[cfg.data.text_column]]
        return tokenizer(texts, truncation=True, max_length=cfg.data.max_length)

    ds = ds.map(tokenize, batched=True, remove_columns=ds.column_names, num_proc=cfg.data.num_proc)
    return ds.train_test_split(test_size=cfg.data.test_size)


def build_args(cfg):
    t = cfg.trainer
    return TrainingArguments(
        output_dir=t.output_dir,
        per_device_train_batch_size=t.per_device_batch_size,
        per_device_eval_batch_size=t.per_device_batch_size,
        gradient_accumulation_steps=t.global_batch_size // t.per_device_batch_size,
        num_train_epochs=t.epochs,
        learning_rate=t.learning_rate,
        warmup_ratio=t.warmup_ratio,
        weight_decay=t.weight_decay,
        bf16=t.bf16,
        optim=t.optim,
        dataloader_num_workers=t.num_workers,
        logging_steps=t.logging_steps,
        eval_strategy="steps",
        eval_steps=t.save_steps,
        save_steps=t.save_steps,
        save_total_limit=t.save_total_limit,
        resume_from_checkpoint=t.resume,
        report_to="tensorboard",
    )


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    log.info(OmegaConf.to_yaml(cfg))
    tokenizer = get_tokenizer(cfg)
    splits = get_datasets(cfg, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, attn_implementation=cfg.model.attn_implementation
    )
    trainer = Trainer(
        model=model,
        args=build_args(cfg),
        train_dataset=splits["train"],
        eval_dataset=splits["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[ThroughputCallback(cfg.data.max_length)],
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
