"""Supervised fine-tuning on help-desk threads."""
import argparse
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from data_utils import MAX_LEN, load_tickets

GLOBAL_BATCH = 64
PER_DEVICE_BATCH = 4


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--model", default="Qwen/Qwen3-8B")
    p.add_argument("--output-dir", default="runs/dev")
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--seed", type=int, default=1234)
    return p.parse_args()


def build_model(name):
    return AutoModelForCausalLM.from_pretrained(
        name,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    splits = load_tickets(args.data, tokenizer, args.seed)
    model = build_model(args.model)
    model.config.use_cache = False

    config = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        max_length=MAX_LEN,
        per_device_train_batch_size=PER_DEVICE_BATCH,
        per_device_eval_batch_size=PER_DEVICE_BATCH,
        # reach GLOBAL_BATCH threads per update on the node
        gradient_accumulation_steps=GLOBAL_BATCH // PER_DEVICE_BATCH,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length",
        dataloader_num_workers=4,
        dataloader_persistent_workers=True,
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="steps",
        save_steps=200,
        save_total_limit=2,
        logging_steps=10,
        report_to="wandb",
        seed=args.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=splits["train"],
        eval_dataset=splits["test"],
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
