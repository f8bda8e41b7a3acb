#!/usr/bin/env python
"""Supervised fine-tuning with a plain Accelerate loop."""
import argparse
import logging
import math
import os
import time
from functools import partial

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_scheduler,
)

from data import encode_example

logger = get_logger(__name__)


def parse_args():
    parser = argparse.ArgumentParser(description="Finetune a causal language model on instruction data")
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--train_file", type=str, required=True)
    parser.add_argument("--max_seq_length", type=int, default=4096)
    parser.add_argument("--per_device_train_batch_size", type=int, default=4)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--warmup_ratio", type=float, default=0.03)
    parser.add_argument("--lr_scheduler_type", type=str, default="linear")
    parser.add_argument("--num_train_epochs", type=int, default=2)
    parser.add_argument("--clip_grad_norm", type=float, default=1.0)
    parser.add_argument("--preprocessing_num_workers", type=int, default=8)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--logging_steps", type=int, default=10)
    parser.add_argument("--checkpointing_steps", type=int, default=500)
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def compute_loss(model, batch):
    outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    logits = outputs.logits.float()
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = batch["labels"][..., 1:].contiguous()
    return F.cross_entropy(
        shift_logits.view(-1, shift_logits.size(-1)),
        shift_labels.view(-1),
        ignore_index=-100,
    )


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    logger.info(accelerator.state)
    set_seed(args.seed)
    if accelerator.is_main_process:
        os.makedirs(args.output_dir, exist_ok=True)
    accelerator.wait_for_everyone()

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, attn_implementation="sdpa")
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False

    raw = load_dataset("json", data_files={"train": args.train_file})["train"]
    with accelerator.main_process_first():
        train_dataset = raw.map(
            partial(encode_example, tokenizer=tokenizer, max_seq_length=args.max_seq_length),
            remove_columns=raw.column_names,
            num_proc=args.preprocessing_num_workers,
            desc="Tokenizing",
        )

    train_dataloader = DataLoader(
        train_dataset,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer=tokenizer, model=None, padding="longest"),
        batch_size=args.per_device_train_batch_size,
        num_workers=2,
        pin_memory=True,
    )

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True
    )

    steps_per_epoch = math.ceil(
        len(train_dataloader) / accelerator.num_processes / args.gradient_accumulation_steps
    )
    max_train_steps = args.num_train_epochs * steps_per_epoch
    # the prepared scheduler advances num_processes times per optimizer step
    scheduler_steps = max_train_steps * accelerator.num_processes
    lr_scheduler = get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=int(scheduler_steps * args.warmup_ratio),
        num_training_steps=scheduler_steps,
    )

    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )

    completed_steps = 0
    starting_epoch = 0
    resume_batches = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        completed_steps = int(os.path.basename(args.resume_from_checkpoint).split("_")[-1])
        starting_epoch = completed_steps // steps_per_epoch
        resume_batches = (completed_steps % steps_per_epoch) * args.gradient_accumulation_steps

    progress = tqdm(total=max_train_steps, initial=completed_steps, disable=not accelerator.is_local_main_process)
    running_loss, micro_steps = 0.0, 0
    tokens_in_interval, interval_start = 0, time.perf_counter()

    for epoch in range(starting_epoch, args.num_train_epochs):
        model.train()
        train_dataloader.set_epoch(epoch)
        loader = train_dataloader
        if epoch == starting_epoch and resume_batches:
            loader = accelerator.skip_first_batches(train_dataloader, resume_batches)
        for batch in loader:
            with accelerator.accumulate(model):
                loss = compute_loss(model, batch)
                running_loss += loss.item()
                micro_steps += 1
                accelerator.backward(loss)
                if accelerator.sync_gradients and args.clip_grad_norm > 0:
                    accelerator.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            tokens_in_interval += batch["input_ids"].numel()

            if accelerator.sync_gradients:
                completed_steps += 1
                progress.update(1)
                if completed_steps % args.logging_steps == 0:
                    now = time.perf_counter()
                    tps = tokens_in_interval * accelerator.num_processes / (now - interval_start)
                    logger.info(
                        f"step {completed_steps} loss {running_loss / micro_steps:.4f} "
                        f"lr {lr_scheduler.get_last_lr()[0]:.2e} trained tokens/s {tps:.0f}"
                    )
                    running_loss, micro_steps = 0.0, 0
                    tokens_in_interval, interval_start = 0, now
                if completed_steps % args.checkpointing_steps == 0:
                    accelerator.save_state(os.path.join(args.output_dir, f"step_{completed_steps}"))

    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model),
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
