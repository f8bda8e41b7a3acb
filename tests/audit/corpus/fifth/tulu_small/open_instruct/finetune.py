#!/usr/bin/env python
"""LoRA instruction tuning, cut down from open-instruct's finetune.py."""
import argparse
import logging
import math
import os
import time

import datasets
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

from open_instruct.encode import add_special, encode_messages

logger = logging.getLogger(__name__)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name_or_path", required=True)
    p.add_argument("--train_file", required=True)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--max_seq_length", type=int, default=1024)
    p.add_argument("--per_device_train_batch_size", type=int, default=2)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--learning_rate", type=float, default=1e-4)
    p.add_argument("--lr_scheduler_type", default="linear")
    p.add_argument("--warmup_ratio", type=float, default=0.0)
    p.add_argument("--num_train_epochs", type=int, default=2)
    p.add_argument("--lora_rank", type=int, default=64)
    p.add_argument("--preprocessing_num_workers", type=int, default=16)
    p.add_argument("--logging_steps", type=int, default=10)
    p.add_argument("--seed", type=int, default=8)
    return p.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    logging.basicConfig(level=logging.INFO if accelerator.is_main_process else logging.ERROR)
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype=torch.bfloat16)
    add_special(tok, model)

    model = get_peft_model(
        model,
        LoraConfig(
            task_type=TaskType.CAUSAL_LM, r=args.lora_rank, lora_alpha=2 * args.lora_rank, lora_dropout=0.1,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    model.gradient_checkpointing_enable()
    model.config.use_cache = False

    with accelerator.main_process_first():
        raw = datasets.load_dataset("json", data_files=args.train_file, split="train")
        train = raw.map(
            lambda r: encode_messages(r, tok, args.max_seq_length),
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
            desc="tokenize",
        )
        train = train.filter(lambda r: any(l != -100 for l in r["labels"]))
    loader = DataLoader(
        train, shuffle=True, batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tok, model=None, padding="longest"), num_workers=2, pin_memory=True,
    )

    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.learning_rate, weight_decay=0.0, fused=True)
    updates = math.ceil(len(loader) / args.gradient_accumulation_steps) * args.num_train_epochs
    sched = get_scheduler(args.lr_scheduler_type, opt, int(args.warmup_ratio * updates), updates)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)

    start = time.time()
    tokens = torch.zeros((), device=accelerator.device)
    total_loss = torch.zeros((), device=accelerator.device)
    done = 0
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total_loss += loss.detach()
                tokens += batch["input_ids"].numel()
                accelerator.backward(loss)
                opt.step()
                sched.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    mean = accelerator.gather(total_loss).mean().item() / (
                        args.logging_steps * args.gradient_accumulation_steps
                    )
                    tps = accelerator.gather(tokens).sum().item() / (time.time() - start)
                    logger.info("step %d/%s loss %.4f lr %.2e  %.0f tokens/s", done, epoch, mean, sched.get_last_lr()[0], tps)
                    total_loss.zero_()
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            d = os.path.join(args.output_dir, f"epoch_{epoch}")
            accelerator.unwrap_model(model).save_pretrained(d)
            tok.save_pretrained(d)


if __name__ == "__main__":
    main()
