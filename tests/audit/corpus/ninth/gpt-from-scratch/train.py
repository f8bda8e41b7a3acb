import math
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from dataset import TextChunkDataset
from model import GPT

# -----------------------------------------------------------------------------
out_dir = "out"
data_path = "data/train.txt"
log_interval = 20
save_interval = 1000

block_size = 1024
batch_size = 16
total_batch_size = 524288  # tokens per optimizer step, all GPUs together

max_iters = 20000
warmup_iters = 500
learning_rate = 6e-4
min_lr = 6e-5
weight_decay = 0.1
grad_clip = 1.0

model_config = dict(n_layer=12, n_head=12, n_embd=768, dropout=0.0, vocab_size=50304, block_size=block_size)
# -----------------------------------------------------------------------------

world_size = int(os.environ.get("WORLD_SIZE", 1))
grad_accum_steps = total_batch_size // (batch_size * block_size * world_size)


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def cycle(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main_worker(rank, n_gpus):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group("nccl", rank=rank, world_size=n_gpus)
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
    torch.set_float32_matmul_precision("high")

    dataset = TextChunkDataset(data_path, block_size)
    sampler = DistributedSampler(dataset, num_replicas=n_gpus, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=0,
        pin_memory=True,
        drop_last=True,
    )

    model = GPT(model_config).to(device)
    model = DDP(model, device_ids=[rank], find_unused_parameters=True)

    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=(0.9, 0.95),
    )

    batches = cycle(loader, sampler)
    model.train()
    t0 = time.time()
    for it in range(max_iters):
        lr = get_lr(it)
        for group in optimizer.param_groups:
            group["lr"] = lr

        loss_accum = torch.zeros((), device=device)
        for micro_step in range(grad_accum_steps):
            x, y = next(batches)
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y) / grad_accum_steps
            loss_accum += loss.detach()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if it % log_interval == 0 and rank == 0:
            dt = time.time() - t0
            t0 = time.time()
            print(f"iter {it} loss {loss_accum.item():.4f} lr {lr:.2e} time {dt:.1f}s")
        if it > 0 and it % save_interval == 0 and rank == 0:
            os.makedirs(out_dir, exist_ok=True)
            torch.save(model.module.state_dict(), os.path.join(out_dir, f"ckpt_{it}.pt"))

    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    mp.spawn(main_worker, args=(n_gpus,), nprocs=n_gpus)
