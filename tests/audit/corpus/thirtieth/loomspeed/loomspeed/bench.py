import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from .batches import loader
from .model import build, tokenizer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, required=True)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--seq-len", type=int, default=1024)
    ap.add_argument("--compile", action="store_true")
    a = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")

    tok = tokenizer()
    model = DDP(build(len(tok)).cuda(), device_ids=[local])
    if a.compile:
        model = torch.compile(model, dynamic=True)
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    data = loader(tok, a.batch_size, a.seq_len, rank, world)

    tokens, losses = 0, []
    start = time.perf_counter()
    it = iter(data)
    for step in range(a.steps):
        batch = next(it)
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
        tokens += batch["input_ids"].numel() * world
    torch.cuda.synchronize()
    took = time.perf_counter() - start

    if rank == 0:
        print(f"bs={a.batch_size:3d}  {a.steps / took:5.1f} it/s  {tokens / took:9,.0f} tok/s  "
              f"last loss {losses[-1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
