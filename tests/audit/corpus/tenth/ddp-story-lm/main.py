import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from dataset import StoryDataset, collate
from model import GPT, GPTConfig

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="stories/train.jsonl")
    p.add_argument("--out", default="ckpt")
    p.add_argument("--global-batch", type=int, default=256)
    p.add_argument("--micro-batch", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def save(args, epoch, model, optimizer):
    os.makedirs(args.out, exist_ok=True)
    state = {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, os.path.join(args.out, "last.pt"))


def worker(rank, nprocs, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("nccl", rank=rank, world_size=nprocs)
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)

    model = GPT(GPTConfig()).to(device)
    model = DDP(model, device_ids=[rank], find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    start_epoch = 0
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start_epoch = state["epoch"] + 1

    dataset = StoryDataset(args.data)
    sampler = DistributedSampler(dataset, num_replicas=nprocs, rank=rank, shuffle=True)
    loader = DataLoader(
        dataset,
        batch_size=args.micro_batch,
        sampler=sampler,
        collate_fn=collate,
        pin_memory=True,
        drop_last=True,
    )

    accum = max(1, args.global_batch // (args.micro_batch * WORLD_SIZE))
    step = 0
    tokens = 0
    t0 = time.time()
    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch)
            (loss / accum).backward()
            tokens += batch["input_ids"].numel()
            if (i + 1) % accum:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % args.log_every == 0:
                tps = tokens * nprocs / (time.time() - t0)
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} train tokens/s {tps:,.0f}")
        if rank == 0:
            save(args, epoch, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args()
    nprocs = torch.cuda.device_count()
    mp.spawn(worker, args=(nprocs, args), nprocs=nprocs)
