import argparse
import math
import os

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from model import ChessGPT

CTX = 512


def lr_at(step, peak, warmup, total):
    if step < warmup:
        return peak * (step + 1) / warmup
    return 0.1 * peak + 0.45 * peak * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def load_games(path):
    moves = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    n = (moves.numel() - 1) // CTX
    return TensorDataset(moves[: n * CTX].view(n, CTX), moves[1 : n * CTX + 1].view(n, CTX))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="moves.bin")
    ap.add_argument("--out", default="ckpt.pt")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")
    amp = torch.autocast("cuda", dtype=getattr(torch, args.dtype), enabled=args.dtype == "bfloat16")

    ds = load_games(args.data)
    sampler = DistributedSampler(ds, shuffle=True, seed=1337, drop_last=True)
    loader = DataLoader(
        ds,
        batch_size=args.batch,
        sampler=sampler,
        num_workers=16,
        pin_memory=True,
        drop_last=True,
    )

    model = DDP(ChessGPT(ctx=CTX).cuda(), device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    start, step = 0, 0
    if os.path.exists(args.out):
        ck = torch.load(args.out, map_location="cpu", weights_only=True)
        model.module.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        start, step = ck["epoch"] + 1, ck["step"]

    total = args.epochs * len(loader)
    running = 0.0
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            for g in opt.param_groups:
                g["lr"] = lr_at(step, args.lr, 500, total)
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            running = 0.98 * running + 0.02 * loss.item()
            step += 1
            if rank == 0 and step % 100 == 0:
                print(f"epoch {epoch} step {step} loss {running:.4f}", flush=True)
        if rank == 0:
            torch.save(
                {"model": model.module.state_dict(), "opt": opt.state_dict(), "epoch": epoch, "step": step},
                args.out,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
