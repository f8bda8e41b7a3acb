"""torchrun --standalone --nproc_per_node 8 train_ddp.py"""
import contextlib
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from net import CodeGPT

VOCAB, BLOCK = 16384, 1024
MICRO, GLOBAL = 32, 512
STEPS, WARMUP, SKIP = 20000, 400, 20
LR, MIN_LR = 6e-4, 6e-5
LOG, SAVE = 50, 1000
SEED, OUT = 99, "ckpt"


def batch_from(tokens, rng, device):
    # a memory-mapped slice costs microseconds, so there is no loader process
    at = rng.integers(0, len(tokens) - BLOCK - 1, size=MICRO)
    rows = np.stack([tokens[i : i + BLOCK + 1] for i in at]).astype(np.int64)
    rows = torch.from_numpy(rows).pin_memory().to(device, non_blocking=True)
    return rows[:, :-1], rows[:, 1:]


def lr_at(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    r = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * r))


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    device = torch.device("cuda", rank)
    accum = GLOBAL // (MICRO * world)
    assert accum * MICRO * world == GLOBAL

    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    tokens = np.memmap("data/code.bin", dtype=np.uint16, mode="r")

    net = CodeGPT(VOCAB, BLOCK).to(device)
    decay = [p for p in net.parameters() if p.dim() >= 2]
    plain = [p for p in net.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.95), fused=True,
    )
    start = 0
    path = os.path.join(OUT, "last.pt")
    if os.path.exists(path):
        state = torch.load(path, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        start = state["step"]
    rng = np.random.default_rng([SEED, rank, start])
    model = DDP(torch.compile(net), device_ids=[rank], gradient_as_bucket_view=True)

    total = torch.zeros((), device=device)
    mark = None
    for step in range(start, STEPS):
        for g in opt.param_groups:
            g["lr"] = lr_at(step)
        for micro in range(accum):
            x, y = batch_from(tokens, rng, device)
            last = micro == accum - 1
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(x, y) / accum
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

        if step + 1 == start + SKIP:
            total.zero_()
            torch.cuda.synchronize()
            mark = (step + 1, time.perf_counter())
        elif mark and (step + 1 - mark[0]) % LOG == 0:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            value = total.item() / LOG
            total.zero_()
            now = time.perf_counter()
            if dist.get_rank() == 0:
                tps = (step + 1 - mark[0]) * GLOBAL * BLOCK / (now - mark[1])
                print(f"step {step + 1} loss {value:.4f} tokens/s {tps:,.0f}", flush=True)
            mark = (step + 1, now)

        if (step + 1) % SAVE == 0:
            if dist.get_rank() == 0:
                os.makedirs(OUT, exist_ok=True)
                torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step + 1}, path + ".tmp")
                os.replace(path + ".tmp", path)
            dist.barrier()
            torch.cuda.synchronize()
            if mark:
                total.zero_()
                mark = (step + 1, time.perf_counter())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
