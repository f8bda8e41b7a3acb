import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--pairs", required=True)
    ap.add_argument("--out", default="runs/dpo")
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--seed", type=int, default=1)
    return ap.parse_args()


def load(name):
    return AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, attn_implementation="sdpa")


def main():
    args = get_args()
    set_seed(args.seed)
    tok = AutoTokenizer.from_pretrained(args.model)

    def to_pair(row):
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            tokenize=False,
            add_generation_prompt=False,
        )
        return {"prompt": prompt, "chosen": row["good"], "rejected": row["bad"]}

    ds = load_dataset("json", data_files=args.pairs, split="train")
    ds = ds.map(to_pair, remove_columns=ds.column_names)

    policy = load(args.model)
    reference = load(args.model)

    cfg = DPOConfig(
        output_dir=args.out,
        beta=args.beta,
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        max_length=1024,
        max_prompt_length=512,
        precompute_ref_log_probs=False,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        optim="adamw_torch_fused",
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        logging_steps=1,
        save_steps=200,
        save_total_limit=2,
        dataloader_num_workers=2,
        report_to="tensorboard",
        seed=args.seed,
    )
    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=cfg,
        train_dataset=ds,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
