import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from model import CurveNet


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--curves", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--lr", type=float, default=5e-4)
    return p.parse_args()


def load(path):
    z = np.load(path)
    flux = torch.from_numpy(z["flux"]).float()
    mask = torch.from_numpy(z["valid"]).float()
    return TensorDataset(torch.stack([flux, mask], dim=1), torch.from_numpy(z["label"]).long())


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234)

    data = load(args.curves)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(
        data, batch_size=args.batch_size, sampler=sampler, pin_memory=True, drop_last=True
    )

    model = DDP(CurveNet().cuda(), device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    updates = args.epochs * (len(loader) // args.accum)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.lr, total_steps=updates, pct_start=0.05)

    done, busy, seen = 0, 0.0, 0
    for epoch in range(args.epochs):
        model.train()
        for step in range(len(loader) // args.accum * args.accum):
            if step == 0:
                batches = iter(loader)
            x, y = next(batches)
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)

            start = time.perf_counter()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            (loss / (args.accum * world)).backward()
            if (step + 1) % args.accum == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad(set_to_none=True)
                sched.step()
                done += 1
            busy += time.perf_counter() - start
            seen += x.size(0)

            if (step + 1) % (50 * args.accum) == 0 and rank == 0:
                print(
                    f"epoch {epoch} update {done} loss {loss.item():.4f} "
                    f"lr {sched.get_last_lr()[0]:.2e} {seen / busy:.0f} curves/s",
                    flush=True,
                )
                busy, seen = 0.0, 0

        if rank == 0:
            os.makedirs(args.out, exist_ok=True)
            save_file(model.module.state_dict(), f"{args.out}/epoch{epoch:02d}.safetensors")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
