import os
import time

import click
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import StoryDataset, collate
from model import SmallGPT

GLOBAL_BATCH = 256
MICRO_BATCH = 16
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
ACCUM = GLOBAL_BATCH // (MICRO_BATCH * WORLD_SIZE)


def worker(rank, nproc, opts):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29511"
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(nproc)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=nproc)
    torch.backends.cuda.matmul.allow_tf32 = True

    data = StoryDataset(opts["data"], opts["ctx"])
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=MICRO_BATCH, sampler=sampler, collate_fn=collate,
                        num_workers=2, pin_memory=True, persistent_workers=True, drop_last=True)

    net = SmallGPT(opts["vocab"], ctx=opts["ctx"]).cuda()
    net = DDP(net, device_ids=[rank])
    opt = torch.optim.AdamW(net.parameters(), lr=opts["lr"], weight_decay=0.1, betas=(0.9, 0.95), fused=True)

    step, tokens, start = 0, 0, time.time()
    for epoch in range(opts["epochs"]):
        sampler.set_epoch(epoch)
        for i, (ids, labels) in enumerate(loader):
            ids = ids.cuda(non_blocking=True)
            labels = labels.cuda(non_blocking=True)
            last = (i + 1) % ACCUM == 0
            net.require_backward_grad_sync = last
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = net(ids, labels) / ACCUM
            loss.backward()
            tokens += ids.numel()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step == 5:
                torch.cuda.synchronize()
                tokens, start = 0, time.time()
            if rank == 0 and step % 20 == 0:
                rate = tokens * nproc / (time.time() - start)
                print(f"step {step} loss {loss.item() * ACCUM:.3f} real tokens/s {rate:,.0f}")
        if rank == 0:
            torch.save(net.module.state_dict(), os.path.join(opts["out"], f"epoch{epoch}.pt"))
    dist.destroy_process_group()


@click.command()
@click.option("--data", default="stories.jsonl")
@click.option("--out", default="ckpt")
@click.option("--vocab", default=32000)
@click.option("--ctx", default=1024)
@click.option("--lr", default=6e-4)
@click.option("--epochs", default=5)
@click.option("--gpus", default=8)
def main(**opts):
    os.makedirs(opts["out"], exist_ok=True)
    mp.spawn(worker, args=(opts["gpus"], opts), nprocs=opts["gpus"])


if __name__ == "__main__":
    main()
