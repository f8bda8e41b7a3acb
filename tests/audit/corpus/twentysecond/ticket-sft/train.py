import argparse
import os

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from data import load_tickets


def parse_args():
    p = argparse.ArgumentParser(description="Fine-tune a small LM on support tickets")
    p.add_argument("--model_name", default="Qwen/Qwen2.5-1.5B")
    p.add_argument("--train_file", default="data/tickets.jsonl")
    p.add_argument("--output_dir", default="out/ticket-sft")
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--grad_accum", type=int, default=2)
    p.add_argument("--max_length", type=int, default=1024)
    p.add_argument("--bf16", action="store_true", help="train in bfloat16")
    p.add_argument("--num_workers", type=int, default=4)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--resume", action="store_true")
    return p.parse_args()


def main():
    args = parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name,
        torch_dtype=torch.float32,
        trust_remote_code=True,
    )
    model.config.use_cache = False

    train_ds = load_tickets(args.train_file, tokenizer, args.max_length)

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.grad_accum,
        dataloader_num_workers=args.num_workers,
        remove_unused_columns=False,
        logging_steps=20,
        save_strategy="epoch",
        save_total_limit=2,
        seed=args.seed,
        report_to="none",
    )

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_ds,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=True if args.resume else None)
    trainer.save_model(os.path.join(args.output_dir, "final"))


if __name__ == "__main__":
    main()
