import logging
from itertools import chain

import hydra
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

log = logging.getLogger(__name__)


def build_datasets(cfg, tokenizer):
    raw = load_dataset("json", data_files=cfg.data.path, split="train")
    raw = raw.train_test_split(test_size=cfg.data.val_fraction, seed=cfg.seed)
    column, block_size = cfg.data.text_column, cfg.data.block_size

    def tokenize(batch):
        return tokenizer([t + tokenizer.eos_token for t in batch[column]])

    def group_texts(batch):
        joined = {k: list(chain(*batch[k])) for k in batch.keys()}
        total = (len(joined["input_ids"]) // block_size) * block_size
        result = {k: [v[i : i + block_size] for i in range(0, total, block_size)] for k, v in joined.items()}
        result["labels"] = result["input_ids"].copy()
        return result

    ds = raw.map(tokenize, batched=True, num_proc=cfg.data.num_proc, remove_columns=raw["train"].column_names)
    return ds.map(group_texts, batched=True, num_proc=cfg.data.num_proc)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    log.info(OmegaConf.to_yaml(cfg))
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        attn_implementation=cfg.model.attn_implementation,
        trust_remote_code=cfg.model.trust_remote_code,
    )
    datasets = build_datasets(cfg, tokenizer)

    args = TrainingArguments(
        output_dir=cfg.output_dir,
        per_device_train_batch_size=cfg.train.per_device_batch_size,
        gradient_accumulation_steps=cfg.train.grad_accum,
        num_train_epochs=cfg.train.epochs,
        learning_rate=cfg.optim.lr,
        weight_decay=cfg.optim.weight_decay,
        warmup_ratio=cfg.optim.warmup_ratio,
        lr_scheduler_type=cfg.optim.scheduler,
        optim=cfg.optim.name,
        bf16=cfg.train.bf16,
        gradient_checkpointing=cfg.train.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        group_by_length=cfg.train.group_by_length,
        logging_steps=cfg.train.logging_steps,
        eval_strategy="steps",
        eval_steps=cfg.train.eval_steps,
        save_steps=cfg.train.save_steps,
        save_total_limit=3,
        report_to="tensorboard",
        seed=cfg.seed,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=datasets["train"],
        eval_dataset=datasets["test"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume_from_checkpoint)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
