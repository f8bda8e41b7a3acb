import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from speedrun.trainer import Trainer


def worker(rank, world, args):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
    )
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    Trainer(args).fit()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--blocks", required=True)
    p.add_argument("--name", required=True)
    p.add_argument("--micro", type=int, default=8)
    p.add_argument("--global-batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=4e-5)
    p.add_argument("--updates", type=int, default=400)
    args = p.parse_args()
    world = torch.cuda.device_count()
    mp.spawn(worker, args=(world, args), nprocs=world)


if __name__ == "__main__":
    main()
