import argparse
import contextlib
import math
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from datasets import load_from_disk
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-0.5B"


def collate(rows, pad_id):
    width = -(-max(len(r["input_ids"]) for r in rows) // 8) * 8
    ids = torch.full((len(rows), width), pad_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        labels[i, :n] = torch.tensor(r["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="out")
    ap.add_argument("--global-batch", type=int, default=128)
    ap.add_argument("--micro-batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--seed", type=int, default=23)
    args = ap.parse_args()

    # started by torchrun, which sets these
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    accum = args.global_batch // (args.micro_batch * world)
    assert accum * args.micro_batch * world == args.global_batch

    random.seed(args.seed + rank)
    np.random.seed(args.seed + rank)
    torch.manual_seed(args.seed + rank)

    tok = AutoTokenizer.from_pretrained(MODEL)
    ds = load_from_disk("cache/tokens")
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(
        ds, batch_size=args.micro_batch, sampler=sampler, drop_last=True,
        collate_fn=lambda rows: collate(rows, tok.pad_token_id),
        num_workers=4, persistent_workers=True, pin_memory=True,
    )

    weights, state = os.path.join(args.out, "model"), os.path.join(args.out, "state.pt")
    resume = os.path.exists(state)
    # float32 master weights; the matmuls run in bf16 under autocast
    model = AutoModelForCausalLM.from_pretrained(
        weights if resume else MODEL, torch_dtype=torch.float32, attn_implementation="sdpa"
    ).to(device)
    model.config.use_cache = False
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    updates = len(loader) // accum
    total = updates * args.epochs
    warm = max(1, total // 30)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(1.0, (s + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / total))),
    )
    first = 0
    if resume:
        saved = torch.load(state, map_location=device, weights_only=True)
        opt.load_state_dict(saved["opt"])
        sched.load_state_dict(saved["sched"])
        first = saved["epoch"]
    ddp = DDP(model, device_ids=[device.index], gradient_as_bucket_view=True)

    ddp.train()
    seen = torch.zeros((), device=device)
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            if i >= updates * accum:
                break
            last = (i + 1) % accum == 0
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with contextlib.nullcontext() if last else ddp.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = ddp(**batch).loss / accum
                loss.backward()
            seen += loss.detach()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            done = (i + 1) // accum
            if done % 50 == 0:
                dist.all_reduce(seen, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"epoch {epoch} update {done}/{updates} loss {seen.item() / 50:.4f}", flush=True)
                seen.zero_()
        seen.zero_()
        if rank == 0:
            model.save_pretrained(weights)
            tok.save_pretrained(weights)
            torch.save({"opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch + 1}, state)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
