import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=5e-6)
    p.add_argument("--batch_size", type=int, default=16, help="pairs per forward over all GPUs")
    p.add_argument("--accum", type=int, default=4, help="accumulation steps")
    p.add_argument("--epochs", type=float, default=1)
    p.add_argument("--max_length", type=int, default=512)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def load(name):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    return model


def main():
    args = get_args()
    set_seed(args.seed)
    world = int(os.environ.get("WORLD_SIZE", 1))

    cfg = DPOConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size // world,
        gradient_accumulation_steps=max(1, args.accum // world),
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        optim="adamw_torch_fused",
        bf16=True,
        max_length=args.max_length,
        max_prompt_length=args.max_length // 2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        dataset_num_proc=8,
        dataloader_num_workers=4,
        logging_steps=10,
        save_steps=100,
        save_total_limit=2,
        seed=args.seed,
        report_to="none",
    )

    tok = AutoTokenizer.from_pretrained(args.model)
    train = load_dataset("json", data_files=args.data, split="train")
    model = load(args.model)
    ref_model = load(args.model)

    trainer = DPOTrainer(
        model,
        ref_model,
        beta=args.beta,
        args=cfg,
        train_dataset=train,
        processing_class=tok,
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
