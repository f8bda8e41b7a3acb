import argparse
import glob
import math
import os
import re
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel as DDP

from blocks import CharGPT, batches


def cosine(step, total, warm):
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def latest(folder):
    found = glob.glob(os.path.join(folder, "state_*.pt"))
    return max(found, key=lambda p: int(re.findall(r"\d+", os.path.basename(p))[0]), default=None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="corpus.bin")
    ap.add_argument("--out", default="runs/nanochar")
    ap.add_argument("--rows", type=int, default=256, help="rows per update over all ranks and micro steps")
    ap.add_argument("--micro", type=int, default=16)
    ap.add_argument("--context", type=int, default=1024)
    ap.add_argument("--steps", type=int, default=5000)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--seed", type=int, default=99)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(args.out, exist_ok=True)

    assert args.rows % (args.micro * world) == 0
    accum = args.rows // (args.micro * world)
    raw = CharGPT(context=args.context).cuda()
    opt = torch.optim.AdamW(raw.parameters(), lr=args.lr, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: cosine(s, args.steps, 200))
    start = 0
    path = latest(args.out)
    if path:
        state = torch.load(path, map_location="cpu", weights_only=True)
        raw.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start = state["step"]
    net = DDP(torch.compile(raw), device_ids=[local])

    stream = batches(args.data, args.context, args.micro, seed=args.seed + rank + 1000 * start)
    acc = torch.zeros((), device="cuda")
    mark = None
    for step in range(start, args.steps):
        for k in range(accum):
            net.require_backward_grad_sync = k == accum - 1
            x, y = next(stream)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = net(x)
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) / accum
            loss.backward()
            acc += loss.detach()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)

        if step == start + 20:
            torch.cuda.synchronize()
            mark = (time.perf_counter(), step)
        if (step + 1) % 50 == 0:
            dist.all_reduce(acc, op=dist.ReduceOp.AVG)
            shown = acc.item() / (50 if step - start >= 49 else step - start + 1)
            acc.zero_()
            if rank == 0 and mark and step > mark[1]:
                rate = (step - mark[1]) * args.rows * args.context / (time.perf_counter() - mark[0])
                print(f"step {step + 1} loss {shown:.4f} tokens/s {rate:,.0f}")
        if rank == 0 and (step + 1) % 1000 == 0:
            torch.save(
                {"model": raw.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "step": step + 1},
                os.path.join(args.out, f"state_{step + 1}.pt"),
            )
    if rank == 0:
        save_file(raw.state_dict(), os.path.join(args.out, "model.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
