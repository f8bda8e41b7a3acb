import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from data import IGNORE, PadToLongest, RecipeDataset, seed_worker

BASE = "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"


def cli():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train-file", required=True)
    ap.add_argument("--out", default="out/recipes")
    ap.add_argument("--global-batch", type=int, default=128, help="sequences per optimizer update, all cards together")
    ap.add_argument("--micro-batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--max-len", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--resume", default=None, help="state file written by an earlier run")
    return ap.parse_args()


def windows(loader, size):
    held = []
    for batch in loader:
        held.append(batch)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held


def main():
    args = cli()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.unk_token
    dataset = RecipeDataset(args.train_file, tokenizer, args.max_len)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, seed=args.seed, drop_last=True)
    loader = DataLoader(
        dataset,
        batch_size=args.micro_batch,
        sampler=sampler,
        collate_fn=PadToLongest(tokenizer.pad_token_id),
        num_workers=2,
        pin_memory=True,
        worker_init_fn=seed_worker,
        drop_last=True,
    )

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="sdpa").to(device)
    model.config.use_cache = False
    model = DDP(model, device_ids=[local], gradient_as_bucket_view=True, find_unused_parameters=True)

    accum = max(1, args.global_batch // args.micro_batch)
    updates = args.epochs * -(-len(loader) // accum)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    schedule = get_cosine_schedule_with_warmup(optimizer, updates // 30, updates)

    step, first_epoch = 0, 0
    if args.resume:
        state = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        step, first_epoch = state["step"], state["epoch"]

    running, seen, since = 0.0, 0, time.perf_counter()
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for window in windows(loader, accum):
            # Every rank divides by the loss tokens of all ranks; DDP averages, hence the factor `world` below.
            count = torch.tensor(sum(int((b["labels"][:, 1:] != IGNORE).sum()) for b in window))
            total = count.to(device)
            dist.all_reduce(total)
            for n, batch in enumerate(window):
                own = int((batch["labels"][:, 1:] != IGNORE).sum())
                batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
                last = n == len(window) - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = model(**batch).loss
                    (loss * own * world / total).backward()
                running += loss.item()
                seen += 1
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 20 == 0:
                took = time.perf_counter() - since
                print(f"step {step}/{updates} loss {running / seen:.4f} {took / 20:.2f} s per update", flush=True)
                running, seen, since = 0.0, 0, time.perf_counter()
        if rank == 0:
            os.makedirs(args.out, exist_ok=True)
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "step": step,
                    "epoch": epoch + 1,
                },
                os.path.join(args.out, "state.pt"),
            )
        dist.barrier()

    if rank == 0:
        model.module.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
