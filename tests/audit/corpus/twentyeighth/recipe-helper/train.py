import argparse

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint
import os

from data_utils import build_dataset


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--data_file", required=True)
    p.add_argument("--output_dir", default="out")
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--bf16", action="store_true", help="train in bf16")
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(args.model_name, attn_implementation="sdpa")
    model.config.use_cache = False

    data = build_dataset(args.data_file, tokenizer, args.max_len)

    targs = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        group_by_length=True,
        optim="adamw_torch_fused",
        logging_steps=25,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        seed=args.seed,
        report_to="none",
    )

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    print("peak GPU memory (GB):", torch.cuda.max_memory_allocated() / 2**30)


if __name__ == "__main__":
    main()
