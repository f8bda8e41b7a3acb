import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import StoryDataset
from model import PebbleGPT

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/tokens.jsonl")
parser.add_argument("--block_size", type=int, default=1024)
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--accum", type=int, default=4)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=6e-4)
parser.add_argument("--warmup", type=int, default=500)
parser.add_argument("--ckpt", default="ckpt.pt")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--seed", type=int, default=1234)
args = parser.parse_args()

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(args.seed)
torch.set_float32_matmul_precision("high")

dataset = StoryDataset(args.data, args.block_size)
sampler = DistributedSampler(dataset, seed=args.seed, drop_last=True)
loader = DataLoader(
    dataset,
    batch_size=args.batch_size,
    sampler=sampler,
    num_workers=4,
    pin_memory=True,
    persistent_workers=True,
    drop_last=True,
)

raw = PebbleGPT(block_size=args.block_size).to(device)
model = DDP(raw, device_ids=[device.index], find_unused_parameters=True)
opt = torch.optim.AdamW(raw.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
total = args.epochs * (len(loader) // args.accum)
sched = torch.optim.lr_scheduler.SequentialLR(
    opt,
    [
        torch.optim.lr_scheduler.LinearLR(opt, 0.01, 1.0, total_iters=args.warmup),
        torch.optim.lr_scheduler.CosineAnnealingLR(opt, max(1, total - args.warmup)),
    ],
    milestones=[args.warmup],
)

first_epoch = 0
if args.resume and os.path.exists(args.ckpt):
    state = torch.load(args.ckpt, map_location=device, weights_only=True)
    raw.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    sched.load_state_dict(state["sched"])
    first_epoch = state["epoch"] + 1

for epoch in range(first_epoch, args.epochs):
    sampler.set_epoch(epoch)
    usable = len(loader) // args.accum * args.accum
    tick = time.perf_counter()
    for i, (x, y) in enumerate(loader):
        if i >= usable:
            break
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        last = (i + 1) % args.accum == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y)
            (loss / args.accum).backward()
        loss_value = loss.item()
        if last:
            torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
        if rank == 0 and (i + 1) % (50 * args.accum) == 0:
            dt = time.perf_counter() - tick
            tokens = 50 * args.accum * args.batch_size * args.block_size * world
            print(f"epoch {epoch} micro-step {i + 1} loss {loss_value:.3f} {tokens / dt:,.0f} tokens/s")
            tick = time.perf_counter()
    if rank == 0:
        torch.save(
            {"model": raw.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch},
            args.ckpt,
        )
    dist.barrier()

dist.destroy_process_group()
