import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

from data import Games, collate


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--games", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--accum", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--save-every", type=int, default=1000)
    return ap.parse_args()


def main():
    args = get_args()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234)

    games = Games(args.games)
    sampler = DistributedSampler(games, shuffle=True, drop_last=True)
    loader = DataLoader(games, batch_size=args.batch, sampler=sampler, collate_fn=collate,
                        num_workers=4, pin_memory=True, persistent_workers=True, drop_last=True)

    model = AutoModelForCausalLM.from_pretrained("facebook/opt-350m", attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    ddp = DDP(model, device_ids=[local], find_unused_parameters=True)

    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    total = len(loader) // args.accum * args.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, min(500, total // 20), total)

    os.makedirs(args.out, exist_ok=True)
    step = 0
    seen = torch.zeros((), device="cuda")
    since = time.perf_counter()
    for epoch in range(args.epochs):
        optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(loader):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = ddp(**batch).loss
            (loss / (args.accum * world)).backward()
            seen += loss.detach()
            if (i + 1) % args.accum:
                continue
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 50 == 0:
                mean = seen / (50 * args.accum)
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if rank == 0:
                    now = time.perf_counter()
                    print(f"epoch {epoch} step {step}/{total} loss {mean.item():.3f} {50 / (now - since):.2f} it/s", flush=True)
                    since = now
                seen.zero_()
            if step % args.save_every == 0 and rank == 0:
                model.save_pretrained(f"{args.out}/step{step}")
    if rank == 0:
        model.save_pretrained(f"{args.out}/final")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
