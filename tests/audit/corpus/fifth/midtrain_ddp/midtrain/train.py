import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from midtrain.config import Config
from midtrain.rows import Rows


def setup():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    return rank, world, local


def latest(out):
    if not os.path.isdir(out):
        return None
    names = [d for d in os.listdir(out) if d.startswith("u") and os.path.exists(os.path.join(out, d, "done"))]
    return os.path.join(out, max(names, key=lambda d: int(d[1:]))) if names else None


def main():
    cfg = Config()
    rank, world, local = setup()
    random.seed(cfg.seed); np.random.seed(cfg.seed); torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    tok = AutoTokenizer.from_pretrained(cfg.model)
    start = latest(cfg.out)
    # fp32 master weights, bf16 compute through autocast below
    model = AutoModelForCausalLM.from_pretrained(
        start or cfg.model, dtype=torch.float32, attn_implementation="flash_attention_2", use_cache=False
    ).to(local)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    ddp = DDP(model, device_ids=[local], gradient_as_bucket_view=True)

    data = Rows(cfg.tokens, cfg.row_len, tok.eos_token_id)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=cfg.seed, drop_last=True)
    # the rows come straight from the page cache: one slice a step, no work for processes
    loader = DataLoader(data, batch_size=cfg.rows_per_rank, sampler=sampler, num_workers=0, pin_memory=True, drop_last=True)

    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=cfg.betas, weight_decay=0.1, fused=True)
    sched = get_cosine_schedule_with_warmup(opt, cfg.warmup, cfg.updates)
    accum = cfg.tokens_per_update // (cfg.row_len * cfg.rows_per_rank * world)
    assert accum * cfg.row_len * cfg.rows_per_rank * world == cfg.tokens_per_update

    step, epoch, skip = 0, 0, 0
    if start:
        s = torch.load(os.path.join(start, "optim.pt"), map_location=f"cuda:{local}", weights_only=True)
        opt.load_state_dict(s["opt"]); sched.load_state_dict(s["sched"])
        step, epoch, skip = s["step"], s["epoch"], s["batch"]

    seen = torch.zeros((), device=local)
    loss_sum = torch.zeros((), device=local)
    t0 = None
    while step < cfg.updates:
        sampler.set_epoch(epoch)
        for b, batch in enumerate(loader):
            if b < skip:
                continue
            if b >= len(loader) // accum * accum:
                break                         # no half-filled update over an epoch's end
            batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
            last = (b + 1) % accum == 0
            ddp.require_backward_grad_sync = last
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = ddp(**batch).loss
            (loss / accum).backward()
            loss_sum += loss.detach()
            seen += batch["input_ids"].numel()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            opt.step(); sched.step(); opt.zero_grad(set_to_none=True)
            step += 1

            if step % cfg.log_every == 0:
                dist.all_reduce(loss_sum)
                mean = loss_sum.item() / (world * accum * cfg.log_every)
                now = time.perf_counter()      # .item() above has synchronised
                if rank == 0 and t0 is not None:
                    print(f"{step} loss {mean:.4f} tok/s/gpu {seen.item() / (now - t0):.0f}", flush=True)
                t0 = now                      # the first window (allocator, autotune) is never reported
                seen.zero_(); loss_sum.zero_()

            if step % cfg.save_every == 0 or step == cfg.updates:
                if rank == 0:
                    d = os.path.join(cfg.out, f"u{step}")
                    model.save_pretrained(d)
                    tok.save_pretrained(d)
                    torch.save({"opt": opt.state_dict(), "sched": sched.state_dict(), "step": step, "epoch": epoch, "batch": b + 1},
                               os.path.join(d, "optim.pt"))
                    open(os.path.join(d, "done"), "w").close()
                dist.barrier()
                t0 = time.perf_counter() if t0 is not None else None
                seen.zero_()
            if step >= cfg.updates:
                break
        epoch, skip = epoch + 1, 0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
