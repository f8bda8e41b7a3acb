import argparse
import contextlib
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from packlm.config import ModelCfg, TrainCfg
from packlm.data import Rows
from packlm.model import PackLM


def lr_at(step, c):
    if step < c.warmup:
        return (step + 1) / c.warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - c.warmup) / (c.steps - c.warmup)))


def batches(loader, sampler, epoch):
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    m, c = ModelCfg(), TrainCfg()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(c.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(a.out, exist_ok=True)

    ds = Rows(a.rows)
    sampler = DistributedSampler(ds, seed=c.seed, drop_last=True)
    loader = DataLoader(ds, c.micro_bs, sampler=sampler, num_workers=4, pin_memory=True,
                        persistent_workers=True, drop_last=True)

    net = PackLM(m).cuda()
    model = DDP(torch.compile(net), device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(net.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=c.wd)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_at(s, c))

    start, last = 0, os.path.join(a.out, "last.pt")
    if os.path.exists(last):
        st = torch.load(last, map_location=f"cuda:{local}", weights_only=True)
        net.load_state_dict(st["model"])
        opt.load_state_dict(st["opt"])
        sched.load_state_dict(st["sched"])
        start = st["step"]

    it = batches(loader, sampler, start * c.accum // max(len(loader), 1))
    tokens = 0
    t0 = time.time()
    running = torch.zeros((), device="cuda")
    for step in range(start, c.steps):
        for k in range(c.accum):
            b = {n: t.cuda(non_blocking=True) for n, t in next(it).items()}
            sync = contextlib.nullcontext() if k == c.accum - 1 else model.no_sync()
            with sync:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(**b) / c.accum
                loss.backward()
            running += loss.detach()
            tokens += b["ids"].numel() * world
        torch.nn.utils.clip_grad_norm_(net.parameters(), c.clip)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)

        if (step + 1) % c.log_every == 0:
            mean = (running / c.log_every).item()
            running.zero_()
            if rank == 0:
                print(f"step {step + 1} loss {mean:.4f} tok/s {tokens / (time.time() - t0):,.0f}", flush=True)
        if (step + 1) % c.save_every == 0:
            if rank == 0:
                torch.save({"model": net.state_dict(), "opt": opt.state_dict(),
                            "sched": sched.state_dict(), "step": step + 1}, last + ".tmp")
                os.replace(last + ".tmp", last)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
