import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, set_seed

from rows import InMemoryRows, collate

LOG_EVERY = 50
SAVE_EVERY = 500
WARMUP_FOR_SPEED = 20


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B")
    p.add_argument("--rows", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def save(path, model, optim, sched, step):
    tmp = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "sched": sched.state_dict(), "step": step}, tmp)
    tmp.rename(path)


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    set_seed(args.seed)

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").to(device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model.train()
    ddp = DDP(model, device_ids=[device.index], gradient_as_bucket_view=True)

    data = InMemoryRows(args.rows)
    sampler = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, collate_fn=collate,
                        num_workers=0, pin_memory=True, drop_last=True)
    per_epoch = len(loader) // args.accum
    optim = torch.optim.AdamW(ddp.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = get_cosine_schedule_with_warmup(optim, 100, per_epoch * args.epochs)

    args.out.mkdir(parents=True, exist_ok=True)
    state = args.out / "state.pt"
    step = 0
    if state.exists():
        saved = torch.load(state, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"])
        optim.load_state_dict(saved["optim"])
        sched.load_state_dict(saved["sched"])
        step = saved["step"]

    running = torch.zeros((), device=device)
    seen = torch.zeros((), device=device)
    first, started, timed = step, None, 0
    for epoch in range(step // per_epoch, args.epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for index in range(per_epoch):
            group = [next(batches) for _ in range(args.accum)]
            if epoch * per_epoch + index < step:
                continue
            total = torch.tensor(sum(int((b["labels"][:, 1:] != -100).sum()) for b in group), device=device)
            dist.all_reduce(total)
            for i, batch in enumerate(group):
                batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
                last = i == len(group) - 1
                with nullcontext() if last else ddp.no_sync():
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        logits = ddp(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(),
                                               ignore_index=-100, reduction="sum")
                    (loss * world / total).backward()
                running += loss.detach() / total
                seen += batch["attention_mask"].sum()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optim.step()
            sched.step()
            optim.zero_grad(set_to_none=True)
            step += 1
            if step == first + WARMUP_FOR_SPEED:
                torch.cuda.synchronize()
                seen.zero_()
                started, timed = time.perf_counter(), step
            if step % LOG_EVERY == 0:
                both = torch.stack([running, seen])
                dist.all_reduce(both)
                mean, tokens = both.tolist()
                if rank == 0 and started is not None:
                    took = time.perf_counter() - started
                    print(f"step {step} loss {mean / LOG_EVERY:.4f} real tokens/s {tokens / took:.0f} over {step - timed} steps")
                running.zero_()
            if step % SAVE_EVERY == 0 and rank == 0:
                save(state, model, optim, sched, step)
    if rank == 0:
        save(state, model, optim, sched, step)
        model.save_pretrained(args.out / "final")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
