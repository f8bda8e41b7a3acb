import contextlib
import math
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from config import Config
from data import StoryDataset, collate
from model import MiniGPT


def worker(rank, world_size, cfg):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29511"
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world_size)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    dataset = StoryDataset(cfg.data_path, cfg.max_len)
    sampler = DistributedSampler(dataset, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(
        dataset,
        batch_size=cfg.micro_batch,
        sampler=sampler,
        collate_fn=collate,
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
        drop_last=True,
    )

    model = DDP(MiniGPT(cfg).cuda(rank), device_ids=[rank], find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)
    total = cfg.epochs * (len(loader) // cfg.grad_accum)

    def factor(step):
        if step < cfg.warmup:
            return (step + 1) / cfg.warmup
        progress = (step - cfg.warmup) / max(1, total - cfg.warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    first_epoch, step = 0, 0
    ckpt_path = os.path.join(cfg.out_dir, "last.pt")
    if os.path.exists(ckpt_path):
        state = torch.load(ckpt_path, map_location=f"cuda:{rank}", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first_epoch, step = state["epoch"] + 1, state["step"]

    for epoch in range(first_epoch, cfg.epochs):
        sampler.set_epoch(epoch)
        optimizer.zero_grad(set_to_none=True)
        for i, (x, y) in enumerate(loader):
            x, y = x.cuda(rank, non_blocking=True), y.cuda(rank, non_blocking=True)
            last = (i + 1) % cfg.grad_accum == 0
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(x, y)
                (loss / cfg.grad_accum).backward()
            print(f"[{rank}] epoch {epoch} batch {i} loss {loss.item():.4f}", flush=True)
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
        if rank == 0:
            os.makedirs(cfg.out_dir, exist_ok=True)
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch,
                    "step": step,
                },
                ckpt_path,
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n, Config()), nprocs=n)
