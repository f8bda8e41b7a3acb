import os
import time

import click
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel as DDP

from pocket.data import make_loader
from pocket.model import PocketMoE

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))


def worker(rank, gpus, opts):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=gpus)
    torch.manual_seed(opts["seed"])

    batch = opts["global_batch"] // WORLD_SIZE
    loader, sampler = make_loader(opts["data"], opts["context"], batch, rank, gpus, opts["seed"])
    net = PocketMoE(opts["vocab"], context=opts["context"]).cuda(rank)
    net = DDP(net, device_ids=[rank], find_unused_parameters=True)
    optim = torch.optim.AdamW(net.parameters(), lr=opts["lr"], fused=True)

    step, spent = 0, 0.0
    for epoch in range(opts["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            t0 = time.perf_counter()
            x, y = x.cuda(rank, non_blocking=True), y.cuda(rank, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = net(x)
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optim.step()
            optim.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            spent += time.perf_counter() - t0
            step += 1
            if step % 50 == 0 and rank == 0:
                print(f"{step} loss {loss.item():.3f} {1000 * spent / 50:.1f} ms/step")
            if step % 50 == 0:
                spent = 0.0
        if rank == 0:
            save_file(net.module.state_dict(), f"{opts['out']}-{epoch}.safetensors")
    dist.destroy_process_group()


@click.command()
@click.option("--data", default="data/train.npy")
@click.option("--out", default="pocket")
@click.option("--vocab", default=32000)
@click.option("--context", default=512)
@click.option("--global-batch", default=128)
@click.option("--epochs", default=4)
@click.option("--lr", default=3e-4)
@click.option("--seed", default=0)
def main(**opts):
    gpus = torch.cuda.device_count()
    mp.spawn(worker, args=(gpus, opts), nprocs=gpus)


if __name__ == "__main__":
    main()
