import argparse
import logging
import math
import os
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator, get_scheduler

logger = get_logger(__name__)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name_or_path", required=True)
    p.add_argument("--train_file", required=True)
    p.add_argument("--mixed_precision", choices=["no", "bf16"], default="bf16")
    p.add_argument("--max_seq_length", type=int, default=2048)
    p.add_argument("--per_device_train_batch_size", type=int, default=4)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--learning_rate", type=float, default=2e-5)
    p.add_argument("--warmup_ratio", type=float, default=0.03)
    p.add_argument("--num_train_epochs", type=int, default=2)
    p.add_argument("--logging_steps", type=int, default=10)
    p.add_argument("--preprocessing_num_workers", type=int, default=16)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--resume_from_checkpoint", default=None)
    p.add_argument("--seed", type=int, default=8)
    return p.parse_args()


def encode_dialogue(example, tokenizer, max_seq_length):
    """Concatenates the turns; only assistant turns (with their end token) are labelled."""
    ids = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    labels = [-100] * len(ids)
    for turn in example["messages"]:
        head = tokenizer(f"<|{turn['role']}|>\n", add_special_tokens=False)["input_ids"]
        body = tokenizer(turn["content"].strip(), add_special_tokens=False)["input_ids"]
        if turn["role"] == "assistant":
            body = body + [tokenizer.eos_token_id]
            labels += [-100] * len(head) + body
        else:
            body = body + tokenizer("\n", add_special_tokens=False)["input_ids"]
            labels += [-100] * (len(head) + len(body))
        ids += head + body
    ids, labels = ids[:max_seq_length], labels[:max_seq_length]
    room = max_seq_length - len(ids)
    return {
        "input_ids": ids + [tokenizer.pad_token_id] * room,
        "attention_mask": [1] * len(ids) + [0] * room,
        "labels": labels + [-100] * room,
    }


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    logging.basicConfig(level=logging.INFO if accelerator.is_main_process else logging.ERROR)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        train = raw.map(
            encode_dialogue,
            fn_kwargs={"tokenizer": tokenizer, "max_seq_length": args.max_seq_length},
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
        )
    loader = DataLoader(
        train,
        shuffle=True,
        collate_fn=default_data_collator,
        batch_size=args.per_device_train_batch_size,
        num_workers=4,
        pin_memory=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
    updates_per_epoch = math.ceil(len(loader) / accelerator.num_processes / args.gradient_accumulation_steps)
    total = updates_per_epoch * args.num_train_epochs
    scheduler = get_scheduler(
        "linear",
        optimizer,
        num_warmup_steps=int(total * args.warmup_ratio) * accelerator.num_processes,
        num_training_steps=total * accelerator.num_processes,
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)

    bar = tqdm(total=total, disable=not accelerator.is_main_process)
    loss_sum = torch.zeros((), device=accelerator.device)
    tokens, start, done = 0, time.time(), 0
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                tokens += batch["input_ids"].numel() * accelerator.num_processes
                labels = batch.pop("labels")
                logits = model(**batch, use_cache=False).logits.float()
                loss = F.cross_entropy(
                    logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100
                )
                loss_sum += loss.detach()
                accelerator.backward(loss / args.gradient_accumulation_steps)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                bar.update(1)
                done += 1
                if done % args.logging_steps == 0:
                    mean = accelerator.gather(loss_sum).mean().item()
                    mean /= args.logging_steps * args.gradient_accumulation_steps
                    rate = tokens / (time.time() - start)
                    logger.info(f"step {done} loss {mean:.4f} training tokens/s {rate:,.0f}")
                    loss_sum.zero_()
                    tokens, start = 0, time.time()
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
