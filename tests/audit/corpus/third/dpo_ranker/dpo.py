"""Preference tuning of our 3B summariser: full weights, pairs from the annotation round of March."""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--policy", default="checkpoints/summariser-3b-sft")
    p.add_argument("--pairs", type=Path, default=Path("data/pairs.jsonl"))
    p.add_argument("--out", type=Path, default=Path("runs/dpo-3b"))
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=5e-7)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--max-len", type=int, default=2048)
    p.add_argument("--per-device", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def read_pairs(path):
    rows = []
    with path.open(encoding="utf-8") as handle:
        for line in handle:
            raw = json.loads(line)
            if raw["winner"] == raw["loser"]:
                continue
            rows.append(
                {
                    "prompt": [{"role": "user", "content": raw["document"]}],
                    "chosen": [{"role": "assistant", "content": raw["winner"]}],
                    "rejected": [{"role": "assistant", "content": raw["loser"]}],
                }
            )
    return Dataset.from_list(rows)


def load(path):
    return AutoModelForCausalLM.from_pretrained(
        path,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",
    )


def main():
    args = get_args()
    tokenizer = AutoTokenizer.from_pretrained(args.policy)

    policy = load(args.policy)
    reference = load(args.policy)
    reference.requires_grad_(False)

    config = DPOConfig(
        output_dir=str(args.out),
        beta=args.beta,
        loss_type="sigmoid",
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.per_device,
        gradient_accumulation_steps=args.accum,
        max_length=args.max_len,
        padding_free=True,  # documents are 200 to 2,000 tokens, padding would be half the batch
        bf16=True,
        gradient_checkpointing=True,  # 74 GiB of 80 in use, does not fit without
        dataset_num_proc=16,
        dataloader_num_workers=4,
        warmup_steps=20,
        logging_steps=10,
        save_strategy="epoch",
        seed=args.seed,
    )

    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=config,
        train_dataset=read_pairs(args.pairs),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.out) if args.out.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(args.out / "final"))


if __name__ == "__main__":
    main()
