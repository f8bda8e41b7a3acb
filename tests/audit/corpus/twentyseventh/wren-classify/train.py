import argparse
import os

import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

DEFAULTS = dict(
    per_device_train_batch_size=4,
    per_device_eval_batch_size=64,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    bf16=True,
    optim="adamw_torch_fused",
    learning_rate=3e-5,
    warmup_ratio=0.06,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    logging_steps=50,
    report_to="none",
)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="google-bert/bert-base-uncased")
    p.add_argument("--train", default="train.csv")
    p.add_argument("--valid", default="valid.csv")
    p.add_argument("--labels", type=int, default=5)
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=13)
    p.add_argument("--out", default="wren-out")
    return p.parse_args()


def accuracy(pred):
    return {"accuracy": float((np.argmax(pred.predictions, axis=-1) == pred.label_ids).mean())}


def main():
    a = parse()
    args = TrainingArguments(
        output_dir=a.out,
        num_train_epochs=a.epochs,
        dataloader_num_workers=a.workers,
        seed=a.seed,
        **DEFAULTS,
    )
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForSequenceClassification.from_pretrained(a.model, num_labels=a.labels)
    ds = load_dataset("csv", data_files={"train": a.train, "valid": a.valid})
    ds = ds.map(lambda r: tok(r["text"], truncation=True, max_length=128), batched=True, remove_columns=["text"])

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        data_collator=DataCollatorWithPadding(tok),
        processing_class=tok,
        compute_metrics=accuracy,
    )
    last = get_last_checkpoint(a.out) if os.path.isdir(a.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
