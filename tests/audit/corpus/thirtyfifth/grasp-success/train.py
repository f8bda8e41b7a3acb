import argparse
import contextlib
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def load(root, split):
    with np.load(Path(root) / f"{split}.npz") as file:  # 40,000 crops of 96 x 96, 1.5 GB
        crops = torch.from_numpy(file["crops"]).float().unsqueeze(1)
        held = torch.from_numpy(file["held"]).float()
    return TensorDataset(crops, held)


def build_model():
    model = torchvision.models.resnet18(num_classes=1)
    model.conv1 = torch.nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    sums = torch.zeros(2, device=device)
    for crops, held in loader:
        crops, held = crops.to(device, non_blocking=True), held.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(crops).squeeze(1)
        sums += torch.stack([((logits > 0) == held.bool()).float().sum(), torch.ones_like(held).sum()])
    model.train()
    return (sums[0] / sums[1]).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--crops", required=True)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--out", default="grasp.pt")
    p.add_argument("--resume", action="store_true")
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(4)

    train = load(args.crops, "train")
    sampler = DistributedSampler(train, shuffle=True, seed=4, drop_last=True)
    loader = DataLoader(train, args.batch_size, sampler=sampler, drop_last=True, pin_memory=True)
    valid_loader = DataLoader(load(args.crops, "valid"), 512, pin_memory=True) if rank == 0 else None

    model = DDP(build_model().to(device), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    per_epoch = len(loader) // args.accumulate
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.epochs * per_epoch)
    first = 0
    if args.resume and os.path.exists(args.out):
        state = torch.load(args.out, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first = state["epoch"] + 1

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        torch.cuda.synchronize()
        start = time.perf_counter()
        total = torch.zeros((), device=device)
        for i, (crops, held) in enumerate(loader):
            if i == per_epoch * args.accumulate:
                break
            crops, held = crops.to(device, non_blocking=True), held.to(device, non_blocking=True)
            last = (i + 1) % args.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    logits = model(crops).squeeze(1)
                loss = F.binary_cross_entropy_with_logits(logits.float(), held)
                (loss / args.accumulate).backward()
            total += loss.detach()
            if last:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        if rank == 0:
            rate = per_epoch * args.accumulate * args.batch_size * dist.get_world_size() / seconds
            accuracy = evaluate(model.module, valid_loader, device)
            mean = total.item() / (per_epoch * args.accumulate)
            print(f"epoch {epoch} loss {mean:.4f} accuracy {accuracy:.4f} crops/s {rate:,.0f}", flush=True)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "scheduler": scheduler.state_dict(), "epoch": epoch}, args.out)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
