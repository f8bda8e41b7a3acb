import os

import hydra
import numpy as np
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


def make_arguments(cfg: DictConfig) -> TrainingArguments:
    t = cfg.train
    return TrainingArguments(
        output_dir=cfg.output_dir,
        num_train_epochs=t.epochs,
        per_device_train_batch_size=t.batch_size,
        per_device_eval_batch_size=t.eval_batch_size,
        gradient_accumulation_steps=t.accumulation,
        learning_rate=t.learning_rate,
        weight_decay=t.weight_decay,
        warmup_ratio=t.warmup_ratio,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        dataloader_num_workers=t.num_workers,
        dataloader_prefetch_factor=t.prefetch_factor,
        eval_strategy="steps",
        eval_steps=t.eval_every,
        save_steps=t.save_every,
        save_total_limit=2,
        logging_steps=20,
        report_to="tensorboard",
    )


def make_data(cfg: DictConfig, tokenizer):
    ds = load_dataset("json", data_files=cfg.data_file, split="train")

    def encode(rows):
        texts = [t + tokenizer.eos_token for t in rows["text"]]
        enc = tokenizer(texts, truncation=True, max_length=cfg.max_length)
        enc["labels"] = [list(ids) for ids in enc["input_ids"]]
        return enc

    ds = ds.map(encode, batched=True, num_proc=8, remove_columns=ds.column_names)
    return ds.train_test_split(test_size=0.02, seed=0)


def token_accuracy(eval_pred):
    logits, labels = eval_pred
    predictions = np.argmax(logits[:, :-1], axis=-1)
    targets = labels[:, 1:]
    keep = targets != -100
    return {"token_accuracy": float((predictions == targets)[keep].mean())}


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    args = make_arguments(cfg)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    with args.main_process_first(desc="tokenising"):
        data = make_data(cfg, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, attn_implementation=cfg.model.attn)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
        processing_class=tokenizer,
        compute_metrics=token_accuracy,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
