import argparse
import logging
import math
import os
import re
from itertools import chain

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    default_data_collator,
    get_scheduler,
)

log = logging.getLogger("cpt")


def parse_args():
    p = argparse.ArgumentParser(description="Continued pre-training on the guideline corpus")
    p.add_argument("--model", default="Qwen/Qwen2.5-3B")
    p.add_argument("--corpus", nargs="+", required=True)
    p.add_argument("--output", required=True)
    p.add_argument("--block", type=int, default=4096)
    p.add_argument("--micro_batch", type=int, default=2)
    p.add_argument("--grad_accum", type=int, default=8)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--warmup", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--checkpoint_every", type=int, default=500)
    p.add_argument("--resume", default=None, help="a step_N folder of an earlier run")
    return p.parse_args()


def blocks_of(args, tokenizer):
    raw = load_dataset("json", data_files=args.corpus, split="train")

    def tokenize(batch):
        return tokenizer([t + tokenizer.eos_token for t in batch["text"]])

    def group(batch):
        joined = {k: list(chain.from_iterable(batch[k])) for k in ("input_ids", "attention_mask")}
        total = len(joined["input_ids"]) // args.block * args.block
        out = {k: [v[i : i + args.block] for i in range(0, total, args.block)] for k, v in joined.items()}
        out["labels"] = [list(ids) for ids in out["input_ids"]]
        return out

    tokens = raw.map(tokenize, batched=True, remove_columns=raw.column_names, load_from_cache_file=False)
    return tokens.map(group, batched=True, batch_size=2000, load_from_cache_file=False)


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum, log_with="wandb")
    logging.basicConfig(level=logging.INFO if accelerator.is_main_process else logging.ERROR)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa", use_cache=False
    )
    model.gradient_checkpointing_enable({"use_reentrant": False})

    data = blocks_of(args, tokenizer)
    loader = DataLoader(
        data,
        shuffle=True,
        batch_size=args.micro_batch,
        collate_fn=default_data_collator,
        num_workers=4,
        pin_memory=True,
        drop_last=True,
    )

    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    rest = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
        fused=True,
    )

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    steps_per_epoch = math.ceil(len(loader) / args.grad_accum)
    total_steps = steps_per_epoch * args.epochs
    scheduler = get_scheduler(
        "cosine",
        optimizer,
        num_warmup_steps=int(args.warmup * total_steps),
        num_training_steps=total_steps,
    )
    scheduler = accelerator.prepare(scheduler)
    accelerator.init_trackers("cpt-medical", config=vars(args))

    step, skip, first_epoch = 0, 0, 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(re.search(r"step_(\d+)", args.resume).group(1))
        first_epoch, done = divmod(step, steps_per_epoch)
        skip = done * args.grad_accum

    model.train()
    for epoch in range(first_epoch, args.epochs):
        batches = skip_first_batches(loader, skip) if skip else loader
        skip = 0
        for batch in batches:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / args.grad_accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

            if accelerator.sync_gradients:
                step += 1
                if step % 20 == 0:
                    mean = accelerator.reduce(loss.detach(), reduction="mean").item() * args.grad_accum
                    accelerator.log({"loss": mean, "lr": scheduler.get_last_lr()[0]}, step=step)
                    log.info("step %d/%d loss %.4f", step, total_steps, mean)
                if step % args.checkpoint_every == 0:
                    accelerator.save_state(os.path.join(args.output, f"step_{step}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output)
    accelerator.end_training()


if __name__ == "__main__":
    main()
