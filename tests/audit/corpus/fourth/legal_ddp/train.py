"""Rewrites legal clauses in plain words. Plain PyTorch, DDP over the local cards."""
import argparse
import contextlib
import os
import random

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

import settings as S
from dataset import ClauseCollator, ClauseDataset


def setup(rank, nproc):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29511"
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(nproc)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=nproc)
    random.seed(S.SEED + rank)
    torch.manual_seed(S.SEED)


def save_state(path, model, opt, sched, epoch):
    os.makedirs(path, exist_ok=True)
    model.module.save_pretrained(path)  # safetensors
    torch.save({"opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch}, f"{path}/state.pt")


def worker(rank, args):
    setup(rank, args.nproc)
    device = torch.device("cuda", rank)

    tokenizer = AutoTokenizer.from_pretrained(S.MODEL)
    tokenizer.pad_token = tokenizer.eos_token

    resume = os.path.exists(f"{args.out}/state.pt")
    source = args.out if resume else S.MODEL
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device)
    model.config.use_cache = False
    model = DDP(model, device_ids=[rank], find_unused_parameters=True)

    data = ClauseDataset(args.data, tokenizer, S.MAX_LEN)
    sampler = DistributedSampler(data, shuffle=True, seed=S.SEED, drop_last=True)
    loader = DataLoader(
        data,
        batch_size=S.MICRO_BATCH,
        sampler=sampler,
        collate_fn=ClauseCollator(tokenizer),
        num_workers=0,
        pin_memory=False,
        drop_last=True,
    )

    opt = torch.optim.AdamW(model.parameters(), lr=S.LR, weight_decay=0.01, fused=True)
    steps = args.epochs * (len(loader) // S.ACCUM)
    sched = get_cosine_schedule_with_warmup(opt, steps // 20, steps)
    first_epoch = 0
    if resume:
        state = torch.load(f"{args.out}/state.pt", map_location="cpu")
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first_epoch = state["epoch"] + 1

    step = 0
    running = torch.zeros((), device=device)
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            boundary = (i + 1) % S.ACCUM == 0
            sync = contextlib.nullcontext() if boundary else model.no_sync()
            with sync:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(**batch).loss
                (loss / S.ACCUM).backward()
            running += loss.detach()
            if not boundary:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                mean = (running / (10 * S.ACCUM)).item()
                running.zero_()
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {mean:.4f}", flush=True)
        if rank == 0:
            save_state(args.out, model, opt, sched, epoch)
            tokenizer.save_pretrained(args.out)
        dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--nproc", type=int, default=torch.cuda.device_count())
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    mp.spawn(worker, args=(args,), nprocs=args.nproc, join=True)


if __name__ == "__main__":
    main()
