#!/usr/bin/env python
"""Supervised finetuning with accelerate + DeepSpeed. Flags come from scripts/launch.py."""
import argparse
import logging
import math
import os
import time
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

logger = get_logger(__name__)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name_or_path", required=True)
    p.add_argument("--train_file", required=True)
    p.add_argument("--max_seq_length", type=int, default=4096)
    p.add_argument("--per_device_train_batch_size", type=int, default=1)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--learning_rate", type=float, default=2e-5)
    p.add_argument("--weight_decay", type=float, default=0.01)
    p.add_argument("--warmup_ratio", type=float, default=0.03)
    p.add_argument("--lr_scheduler_type", default="linear")
    p.add_argument("--num_train_epochs", type=int, default=3)
    p.add_argument("--preprocessing_num_workers", type=int, default=16)
    p.add_argument("--use_lora", action="store_true")
    p.add_argument("--lora_rank", type=int, default=64)
    p.add_argument("--use_liger_kernel", action="store_true")
    p.add_argument("--gradient_checkpointing", type=lambda s: s.lower() == "true", default=True)
    p.add_argument("--logging_steps", type=int, default=10)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--resume_from_checkpoint", default=None)
    return p.parse_args()


def encode(example, tok, max_len):
    ids, labels = [], []
    for i, m in enumerate(example["messages"]):
        if m["role"] == "assistant":
            head = "<|assistant|>\n"
            body = m["content"].strip() + tok.eos_token + "\n"
            h = tok(head, add_special_tokens=False).input_ids
            b = tok(body, add_special_tokens=False).input_ids
            ids += h + b
            labels += [-100] * len(h) + b
        else:
            t = tok(f"<|{m['role']}|>\n{m['content'].strip()}\n", add_special_tokens=i == 0).input_ids
            ids += t
            labels += [-100] * len(t)
    return {"input_ids": ids[:max_len], "labels": labels[:max_len], "attention_mask": [1] * min(len(ids), max_len)}


def main():
    args = parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if tok.pad_token is None:
        tok.add_special_tokens({"pad_token": "<pad>"})

    if args.use_liger_kernel:
        from liger_kernel.transformers import AutoLigerKernelForCausalLM as Auto
    else:
        Auto = AutoModelForCausalLM
    model = Auto.from_pretrained(
        args.model_name_or_path, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False
    if len(tok) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tok), pad_to_multiple_of=8)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if args.use_lora:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.CAUSAL_LM,
                r=args.lora_rank,
                lora_alpha=2 * args.lora_rank,
                target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
            ),
        )

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        ds = raw.map(
            partial(encode, tok=tok, max_len=args.max_seq_length),
            remove_columns=raw.column_names,
            num_proc=args.preprocessing_num_workers,
            desc="tokenizing",
        )
        ds = ds.filter(lambda e: any(x != -100 for x in e["labels"]))
    dl = DataLoader(
        ds,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tok, model=model, padding="longest"),
        num_workers=2,
        pin_memory=True,
    )

    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=args.learning_rate, weight_decay=args.weight_decay, fused=True
    )
    steps = math.ceil(len(dl) / args.gradient_accumulation_steps) * args.num_train_epochs
    sched = get_scheduler(args.lr_scheduler_type, optimizer, int(steps * args.warmup_ratio), steps)
    model, optimizer, dl, sched = accelerator.prepare(model, optimizer, dl, sched)
    per_epoch = math.ceil(len(dl) / args.gradient_accumulation_steps)
    total = per_epoch * args.num_train_epochs

    first_epoch = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        first_epoch = int(args.resume_from_checkpoint.rstrip("/").rsplit("_", 1)[-1]) + 1

    done = first_epoch * per_epoch
    tokens = 0
    logged, loss_sum = done, torch.zeros((), device=accelerator.device)
    start = time.time()
    for epoch in range(first_epoch, args.num_train_epochs):
        model.train()
        for batch in dl:
            tokens += batch["input_ids"].numel()
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss_sum += loss.detach()
                accelerator.backward(loss)
                optimizer.step()
                sched.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    avg = accelerator.gather(loss_sum).mean().item()
                    avg /= (done - logged) * args.gradient_accumulation_steps
                    tps = tokens * accelerator.num_processes / (time.time() - start)
                    logger.info(f"step {done}/{total} loss {avg:.4f} train_tokens_per_sec {tps:.0f}", main_process_only=True)
                    tokens, start, logged = 0, time.time(), done
                    loss_sum.zero_()
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=state
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
