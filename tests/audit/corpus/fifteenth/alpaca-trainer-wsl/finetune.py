import argparse
import os

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from data_utils import AlpacaDataset


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base_model", type=str, default="Qwen/Qwen2.5-0.5B")
    ap.add_argument("--data", type=str, default="data/alpaca_tiny.jsonl")
    ap.add_argument("--out", type=str, default="out")
    ap.add_argument("--cutoff_len", type=int, default=2048)
    ap.add_argument("--batch_size", type=int, default=4)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--bf16", action="store_true")
    ap.add_argument("--workers", type=int, default=16)
    ap.add_argument("--resume", action="store_true")
    return ap.parse_args()


def main():
    args = get_args()
    set_seed(1234)

    tokenizer = AutoTokenizer.from_pretrained(args.base_model)
    model = AutoModelForCausalLM.from_pretrained(args.base_model, torch_dtype=torch.float32)
    model.config.use_cache = False

    train_set = AlpacaDataset(args.data, tokenizer, args.cutoff_len)

    training_args = TrainingArguments(
        output_dir=args.out,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.accum,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        warmup_ratio=0.05,
        lr_scheduler_type="cosine",
        weight_decay=0.0,
        optim="adamw_hf",
        logging_steps=20,
        save_steps=500,
        save_total_limit=2,
        save_safetensors=False,
        dataloader_num_workers=args.workers,
        remove_unused_columns=False,
        report_to="none",
        seed=1234,
    )

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        data_collator=default_data_collator,
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(os.path.join(args.out, "final"))


if __name__ == "__main__":
    main()
