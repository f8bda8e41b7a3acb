import argparse
import json
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from net import LayerDropLM

WARM = 30  # steps left out of the speed figure: allocator, cuBLAS choice, first workers


def save(path, model, optimizer, epoch, step):
    path.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), path / "model.safetensors")
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    (path / "progress.json").write_text(json.dumps({"epoch": epoch, "step": step}))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ids", default="data/train_ids.safetensors")
    ap.add_argument("--out", type=Path, default=Path("runs/layerdrop"))
    ap.add_argument("--batch", type=int, default=64, help="rows per card")
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--lr", type=float, default=4e-4)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--resume", action="store_true")
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    card = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(card)
    device = torch.device("cuda", card)
    random.seed(args.seed + rank)
    np.random.seed(args.seed + rank)
    torch.manual_seed(args.seed)

    stored = load_file(args.ids)
    ids, lengths = stored["ids"].long(), stored["lengths"]  # [n, 513], cut by prepare.py, tail zero
    data = TensorDataset(ids, lengths)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=args.seed, drop_last=True)
    # Everything is one tensor in memory: an index and a stack, which a worker process would only make slower.
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, num_workers=0, pin_memory=True, drop_last=True)

    net = LayerDropLM().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    first, step = 0, 0
    if args.resume and (args.out / "progress.json").exists():
        net.load_state_dict(load_file(args.out / "model.safetensors"))
        optimizer.load_state_dict(torch.load(args.out / "optimizer.pt", map_location=device, weights_only=True))
        progress = json.loads((args.out / "progress.json").read_text())
        first, step = progress["epoch"], progress["step"]
    # Skipped layers leave parameters without a gradient, and each rank skips others.
    model = DistributedDataParallel(net, device_ids=[card], find_unused_parameters=True)

    loss_sum = torch.zeros((), device=device)
    useful = torch.zeros((), device=device, dtype=torch.long)
    timed_from = None
    local_step = 0
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for rows, length in loader:
            if local_step == WARM:
                torch.cuda.synchronize()
                useful.zero_()
                timed_from = time.perf_counter()
            rows = rows.to(device, non_blocking=True)
            length = length.to(device, non_blocking=True)
            targets = rows[:, 1:].clone()
            real = torch.arange(targets.size(1), device=device) < (length - 1).unsqueeze(1)
            targets.masked_fill_(~real, -100)

            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(rows[:, :-1])
                total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
            count = real.sum()
            everywhere = count.clone()
            dist.all_reduce(everywhere)
            # DDP takes the mean over ranks, the loss is per token of all ranks: hence times world.
            (total * world / everywhere).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            loss_sum += total.detach() / count
            useful += everywhere
            step += 1
            local_step += 1
            if step % 50 == 0:
                mean = loss_sum.item() / 50
                loss_sum.zero_()
                line = f"epoch {epoch} step {step} loss {mean:.4f}"
                if timed_from is not None:
                    line += f" {useful.item() / (time.perf_counter() - timed_from):,.0f} loss tokens/s (no padding)"
                if rank == 0:
                    print(line, flush=True)
        if rank == 0:
            save(args.out, net, optimizer, epoch + 1, step)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
