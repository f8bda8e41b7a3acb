import argparse
import contextlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    get_cosine_schedule_with_warmup,
    set_seed,
)

from .data import Collate, load

LOG_EVERY = 25
SKIP_FOR_SPEED = 10


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--global_batch", type=int, default=128)
    p.add_argument("--micro_batch", type=int, default=16)
    p.add_argument("--max_len", type=int, default=512)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--seed", type=int, default=20)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    set_seed(args.seed)

    per_step = args.micro_batch * world
    if args.global_batch % per_step:
        raise SystemExit(f"--global_batch must be a multiple of {per_step}")
    accum = args.global_batch // per_step

    tok = AutoTokenizer.from_pretrained(args.model)
    rows = load(args.data, tok, args.max_len)
    sampler = DistributedSampler(rows, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(
        rows,
        batch_size=args.micro_batch,
        sampler=sampler,
        collate_fn=Collate(tok.pad_token_id),
        num_workers=2,
        pin_memory=True,
        persistent_workers=True,
        drop_last=True,
    )

    net = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.float32, attn_implementation="sdpa"
    ).to(device)
    net.config.use_cache = False
    model = DDP(net, device_ids=[device.index], gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    steps_per_epoch = len(loader) // accum
    total = steps_per_epoch * args.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    state_file = args.out / "state.pt"
    first = 0
    if state_file.exists():
        state = torch.load(state_file, map_location="cpu", weights_only=True)
        net.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first = state["epoch"] + 1

    model.train()
    done = 0
    real_tokens = torch.zeros((), dtype=torch.long, device=device)
    running = torch.zeros((), device=device)
    start = None
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            if i >= steps_per_epoch * accum:
                break
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            last = (i + 1) % accum == 0
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(**batch).loss
                (loss / accum).backward()
            running += loss.detach() / accum
            real_tokens += batch["attention_mask"].sum()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            done += 1
            if done == SKIP_FOR_SPEED:
                torch.cuda.synchronize()
                start = time.perf_counter()
                real_tokens.zero_()
            if done % LOG_EVERY == 0:
                mean = running / LOG_EVERY
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"epoch {epoch} update {done} loss {mean.item():.4f}", flush=True)
                running.zero_()
        if start is not None:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            count = real_tokens.clone()
            dist.all_reduce(count)
            if rank == 0:
                print(f"{count.item() / seconds:,.0f} real tokens/s over {world} ranks", flush=True)
        if rank == 0:
            args.out.mkdir(parents=True, exist_ok=True)
            net.save_pretrained(args.out)
            tok.save_pretrained(args.out)
            torch.save(
                {"model": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch},
                state_file,
            )
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
