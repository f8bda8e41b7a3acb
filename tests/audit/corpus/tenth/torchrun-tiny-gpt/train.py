"""Pretraining on a memory-mapped file of token ids. Start with torchrun (see run.sh)."""
import argparse
import contextlib
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoConfig, AutoModelForCausalLM

RANK = int(os.environ["RANK"])
LOCAL_RANK = int(os.environ["LOCAL_RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
WARMUP_STEPS_TIMING = 20


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--tokens", default="data/train.bin")
    p.add_argument("--block", type=int, default=2048)
    p.add_argument("--micro-batch", type=int, default=16)
    p.add_argument("--global-batch", type=int, default=512)
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--save-every", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default="runs/tiny")
    return p.parse_args()


def get_batch(data, args, rng, device):
    starts = rng.integers(0, len(data) - args.block, size=args.micro_batch)
    rows = np.stack([data[s : s + args.block].astype(np.int64) for s in starts])
    x = torch.from_numpy(rows).pin_memory()
    return x.to(device, non_blocking=True)


def main():
    args = parse()
    dist.init_process_group("nccl")
    torch.cuda.set_device(LOCAL_RANK)
    device = torch.device("cuda", LOCAL_RANK)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng([args.seed, RANK])
    torch.backends.cuda.matmul.allow_tf32 = True

    config = AutoConfig.from_pretrained("HuggingFaceTB/SmolLM2-135M", use_cache=False)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, 1.0, args.warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps - args.warmup, args.lr * 0.1),
        ],
        milestones=[args.warmup],
    )

    step = 0
    last = os.path.join(args.out, "last.pt")
    if os.path.exists(last):
        state = torch.load(last, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        step = state["step"]
        rng = np.random.default_rng([args.seed, RANK, step])
    ddp = DDP(model, device_ids=[LOCAL_RANK])

    assert args.global_batch % (args.micro_batch * WORLD_SIZE) == 0
    accum = args.global_batch // (args.micro_batch * WORLD_SIZE)
    data = np.memmap(args.tokens, dtype=np.uint16, mode="r")
    first = step
    t0 = time.perf_counter()
    while step < args.steps:
        total = torch.zeros((), device=device)
        for micro in range(accum):
            x = get_batch(data, args, rng, device)
            last_micro = micro == accum - 1
            with contextlib.nullcontext() if last_micro else ddp.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = ddp(input_ids=x, labels=x).loss / accum
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1

        if step == first + WARMUP_STEPS_TIMING:
            torch.cuda.synchronize()
            t0 = time.perf_counter()
        if step % args.log_every == 0:
            value = total.item()
            done = step - first - WARMUP_STEPS_TIMING
            if RANK == 0 and done > 0:
                rate = done * args.global_batch * args.block / (time.perf_counter() - t0)
                print(f"step {step} loss {value:.4f} tokens/s {rate:,.0f}", flush=True)
        if step % args.save_every == 0 and RANK == 0:
            os.makedirs(args.out, exist_ok=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "step": step,
            }
            torch.save(state, last + ".tmp")
            os.replace(last + ".tmp", last)

    if RANK == 0:
        model.save_pretrained(os.path.join(args.out, "final"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
