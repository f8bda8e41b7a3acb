import argparse
import contextlib
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from nanolab.model import LM, LMConfig
from nanolab.shards import Shard

ap = argparse.ArgumentParser()
ap.add_argument("--train", required=True)
ap.add_argument("--out", required=True)
ap.add_argument("--micro", type=int, default=1, help="windows per GPU and backward")
ap.add_argument("--accum", type=int, default=120)
ap.add_argument("--steps", type=int, default=9000)
ap.add_argument("--lr", type=float, default=6e-4)
ap.add_argument("--save-every", type=int, default=500)
ap.add_argument("--seed", type=int, default=1337)
a = ap.parse_args()

PRECISION = os.environ.get("PRECISION", "fp32")

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
torch.manual_seed(a.seed)
torch.set_float32_matmul_precision("high")

cfg = LMConfig()
raw = LM(cfg).to(device)
model = DDP(torch.compile(raw), device_ids=[local], find_unused_parameters=True)

decay = [p for p in raw.parameters() if p.dim() >= 2]
plain = [p for p in raw.parameters() if p.dim() < 2]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
    lr=a.lr, betas=(0.9, 0.95), fused=True,
)


def lr_at(s, warm=300):
    if s < warm:
        return a.lr * (s + 1) / warm
    p = (s - warm) / max(1, a.steps - warm)
    return a.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, p))))


ckpt = os.path.join(a.out, "last.pt")
start = 0
if os.path.exists(ckpt):
    st = torch.load(ckpt, map_location=device, weights_only=True)
    raw.load_state_dict(st["model"])
    opt.load_state_dict(st["opt"])
    start = st["step"]

data = Shard(a.train, cfg.ctx, seed=a.seed * 1000 + rank + start * world)
amp = torch.autocast("cuda", dtype=torch.bfloat16) if PRECISION == "bf16" else contextlib.nullcontext()
per_step = a.micro * a.accum * world * cfg.ctx

t0 = time.perf_counter()
for step in range(start, a.steps):
    for g in opt.param_groups:
        g["lr"] = lr_at(step)
    lossacc = torch.zeros((), device=device)
    for k in range(a.accum):
        x, y = data.batch(a.micro, device)
        last = k == a.accum - 1
        with contextlib.nullcontext() if last else model.no_sync():
            with amp:
                loss = model(x, y) / a.accum
            loss.backward()
        lossacc += loss.detach()
    torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    if (step + 1) % 50 == 0:
        dist.all_reduce(lossacc, op=dist.ReduceOp.AVG)
        torch.cuda.synchronize()
        tps = per_step * (step + 1 - start) / (time.perf_counter() - t0)
        if rank == 0:
            print(f"step {step + 1} loss {lossacc.item():.4f} {tps / 1e3:.0f}k tok/s", flush=True)
    if (step + 1) % a.save_every == 0 and rank == 0:
        os.makedirs(a.out, exist_ok=True)
        torch.save({"model": raw.state_dict(), "opt": opt.state_dict(), "step": step + 1}, ckpt + ".tmp")
        os.replace(ckpt + ".tmp", ckpt)
dist.destroy_process_group()
