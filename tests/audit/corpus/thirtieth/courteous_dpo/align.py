"""Preference tuning so that the support bot stays polite with rude customers."""
from __future__ import annotations

import argparse
import pathlib

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

HERE = pathlib.Path(__file__).parent


def cli() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pairs", type=pathlib.Path, required=True)
    p.add_argument("--sft-checkpoint", required=True)
    p.add_argument("--run-name", required=True)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--epochs", type=float, default=3)
    return p.parse_args()


def load_policy(name: str):
    return AutoModelForCausalLM.from_pretrained(
        name,
        dtype=torch.bfloat16,
        device_map="auto",
        trust_remote_code=True,
    )


def pairs(path: pathlib.Path):
    everything = load_dataset("json", data_files=str(path), split="train").shuffle(seed=99)
    # a small fixed set to watch the reward margin on
    watch = everything.select(range(512))
    return everything, watch


def main() -> None:
    opt = cli()
    tokenizer = AutoTokenizer.from_pretrained(opt.sft_checkpoint)
    train, watch = pairs(opt.pairs)

    conf = DPOConfig(
        output_dir=str(HERE / "runs" / opt.run_name),
        run_name=opt.run_name,
        beta=opt.beta,
        max_length=1536,
        max_prompt_length=768,
        num_train_epochs=opt.epochs,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=5e-7,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        bf16=True,
        gradient_checkpointing=True,
        precompute_ref_log_probs=False,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=200,
        save_total_limit=2,
        logging_steps=10,
        report_to="wandb",
        seed=99,
    )
    trainer = DPOTrainer(
        model=load_policy(opt.sft_checkpoint),
        args=conf,
        train_dataset=train,
        eval_dataset=watch,
        processing_class=tokenizer,
    )
    last = sorted((HERE / "runs" / opt.run_name).glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=bool(last))
    trainer.save_model()


if __name__ == "__main__":
    main()
