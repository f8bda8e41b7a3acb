import contextlib
import json
import os

import fire
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lm.model import Decoder


def load_windows(path, window):
    ids = np.fromfile(path, dtype=np.uint16).astype(np.int32)
    n = len(ids) // (window + 1)
    return TensorDataset(torch.from_numpy(ids[: n * (window + 1)].reshape(n, window + 1)))


def train(config, tokens, out="checkpoints/lm.pt", micro=8, accum=1, lr=3e-4, warmup=500, epochs=1, seed=1):
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    with open(config) as fh:
        cfg = json.load(fh)

    data = load_windows(tokens, cfg["window"])
    sampler = DistributedSampler(data, shuffle=True, seed=seed, drop_last=True)
    loader = DataLoader(data, batch_size=micro, sampler=sampler, num_workers=16, pin_memory=True, drop_last=True)

    model = Decoder(**cfg).cuda()
    model = DDP(model, device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))

    first, update = 0, 0
    if os.path.exists(out):
        state = torch.load(out, map_location="cpu", weights_only=True)
        model.module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first, update = state["epoch"] + 1, state["update"]

    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        model.train()
        for i, (rows,) in enumerate(loader):
            rows = rows.cuda(non_blocking=True).long()
            last = (i + 1) % accum == 0
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    logits = model(rows[:, :-1])
                    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
                (loss / accum).backward()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            update += 1
            if update % 50 == 0 and rank == 0:
                print(f"update {update} rows {update * micro * accum * world} loss {loss.item():.4f}", flush=True)
        if rank == 0:
            os.makedirs(os.path.dirname(out), exist_ok=True)
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "opt": opt.state_dict(),
                    "sched": sched.state_dict(),
                    "epoch": epoch,
                    "update": update,
                },
                out,
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    fire.Fire(train)
