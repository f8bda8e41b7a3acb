import os
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2Config, GPT2LMHeadModel

BLOCK = 1024
GLOBAL_BATCH = 256
MICRO_BATCH = 16
MAX_STEPS = 20_000
LOG_EVERY = 50
SAVE_EVERY = 1000
OUT = os.environ.get("OUT_DIR", "out")


def get_batch(tokens, generator, device):
    """Random windows of a token file that the page cache holds."""
    at = torch.randint(len(tokens) - BLOCK, (MICRO_BATCH,), generator=generator)
    rows = torch.stack([torch.from_numpy(tokens[i : i + BLOCK].astype(np.int64)) for i in at.tolist()])
    return rows.pin_memory().to(device, non_blocking=True)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    assert GLOBAL_BATCH % (MICRO_BATCH * world) == 0
    accum = GLOBAL_BATCH // (MICRO_BATCH * world)

    torch.manual_seed(1337)
    tokens = np.memmap("data/train.bin", dtype=np.uint16, mode="r")
    base = GPT2LMHeadModel(
        GPT2Config(n_positions=BLOCK, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    ).to(device)
    decay = [p for p in base.parameters() if p.dim() >= 2]
    plain = [p for p in base.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=6e-4,
        betas=(0.9, 0.95),
        fused=True,
    )
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, total_iters=500)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_STEPS - 500, eta_min=6e-5)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[500])

    start = 0
    path = os.path.join(OUT, "state.pt")
    if os.path.exists(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        base.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start = state["step"]

    model = DDP(base, device_ids=[local], gradient_as_bucket_view=True)
    generator = torch.Generator().manual_seed(1337 + rank + 1000 * start)
    model.train()
    total = torch.zeros((), device=device)
    begin = None
    for step in range(start, MAX_STEPS):
        for micro in range(accum):
            batch = get_batch(tokens, generator, device)
            with nullcontext() if micro == accum - 1 else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(input_ids=batch, labels=batch).loss / accum
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)

        if (step + 1) % LOG_EVERY == 0:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            value = total.item() / LOG_EVERY
            now = time.perf_counter()
            if rank == 0 and begin is not None:
                rate = LOG_EVERY * GLOBAL_BATCH * BLOCK / (now - begin)
                print(f"step {step + 1} loss {value:.4f} {rate:,.0f} tokens/s", flush=True)
            begin = now
            total.zero_()
        if (step + 1) % SAVE_EVERY == 0 and rank == 0:
            os.makedirs(OUT, exist_ok=True)
            torch.save(
                {
                    "model": base.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "step": step + 1,
                },
                path,
            )
    if rank == 0:
        base.save_pretrained(os.path.join(OUT, "final"), safe_serialization=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
