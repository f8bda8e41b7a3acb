"""Classifier head on frozen embeddings. torchrun --nproc_per_node=4 train.py config.yaml [key=value ...]"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(n, size, rank, world, epoch, seed, device):
    """The same permutation on every rank; each takes its own part. Incomplete batches are dropped."""
    g = torch.Generator(device=device).manual_seed(seed + epoch)
    order = torch.randperm(n, generator=g, device=device)
    step = size * world
    for s in range(0, n - step + 1, step):
        yield order[s + rank * size : s + (rank + 1) * size]


def main():
    cfg = OmegaConf.merge(OmegaConf.load(sys.argv[1]), OmegaConf.from_cli(sys.argv[2:]))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    torch.manual_seed(cfg.seed)
    torch.set_float32_matmul_precision("high")

    assert cfg.global_batch % world == 0
    size = cfg.global_batch // world

    # 2.8 GB: the whole table lives on each card, so there is no loader to feed
    table = load_file(cfg.data, device=f"cuda:{local}")
    x, y = table["x"], table["y"]
    cut = int(0.95 * len(x))

    net = nn.Sequential(
        nn.LayerNorm(x.shape[1]),
        nn.Linear(x.shape[1], cfg.hidden),
        nn.GELU(),
        nn.Linear(cfg.hidden, cfg.classes),
    ).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    steps = cfg.epochs * (cut // cfg.global_batch)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=steps)

    os.makedirs(cfg.out, exist_ok=True)
    path, first = os.path.join(cfg.out, "state.pt"), 0
    if os.path.exists(path):
        state = torch.load(path, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first = state["epoch"] + 1
    model = DDP(net, device_ids=[local])

    step = 0
    for epoch in range(first, cfg.epochs):
        model.train()
        running, since, mark = torch.zeros((), device=device), 0, time.perf_counter()
        for idx in batches(cut, size, rank, world, epoch, cfg.seed, device):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(x[idx])
            loss = F.cross_entropy(logits.float(), y[idx])
            loss.backward()
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            running += loss.detach()
            since += 1
            step += 1
            if step % cfg.log_every == 0:
                mean = (running / since).item()
                rate = since * cfg.global_batch / (time.perf_counter() - mark)
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {mean:.4f} {rate:.0f} rows/s", flush=True)
                running.zero_()
                since, mark = 0, time.perf_counter()

        model.eval()
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            mine = slice(cut + rank, None, world)
            hit = (net(x[mine]).argmax(-1) == y[mine]).sum()
        dist.all_reduce(hit)
        if rank == 0:
            print(f"epoch {epoch} accuracy {hit.item() / (len(x) - cut):.4f}", flush=True)
            state = {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch}
            torch.save(state, path + ".tmp")
            os.replace(path + ".tmp", path)

    if rank == 0:
        save_file(net.state_dict(), os.path.join(cfg.out, "head.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
