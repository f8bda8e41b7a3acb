"""Preference tuning of the 1.7B assistant on UltraFeedback (binarised)."""
import argparse
import os

from datasets import load_dataset
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
DATASET = "trl-lib/ultrafeedback_binarized"


def keep(row):
    """Rows where both answers got the same score teach nothing."""
    return row["score_chosen"] > row["score_rejected"]


def load(num_proc):
    ds = load_dataset(DATASET)
    ds = ds.filter(keep, num_proc=num_proc)
    return ds.remove_columns(["score_chosen", "score_rejected"])


def make_config(out, beta, lr):
    return DPOConfig(
        output_dir=out,
        beta=beta,
        loss_type=["sigmoid"],
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        num_train_epochs=3,
        optim="adamw_torch",
        weight_decay=0.0,
        # 4 cards x 4 pairs x 2 = 64 pairs per update, as in the paper
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=8,
        max_length=1536,
        max_prompt_length=512,
        gradient_checkpointing=True,
        bf16=True,
        dataset_num_proc=8,
        dataloader_num_workers=4,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=250,
        save_strategy="steps",
        save_steps=250,
        save_total_limit=2,
        report_to="tensorboard",
        seed=29,
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default="runs/dpo")
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=5e-7)
    args = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data = load(num_proc=8)

    # the trainer makes the frozen copy of the starting model by itself
    trainer = DPOTrainer(
        model=MODEL,
        args=make_config(args.out, args.beta, args.lr),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
