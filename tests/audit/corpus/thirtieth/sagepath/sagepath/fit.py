import argparse
import functools
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoTokenizer, get_cosine_schedule_with_warmup

from .corpus import Paths, collate
from .net import PathGrader

NAME = "Qwen/Qwen2.5-0.5B"


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--table", required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--global-batch", type=int, default=256)
    p.add_argument("--micro-batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    return p.parse_args()


def main():
    a = arguments()
    dist.init_process_group("nccl")
    world, local = dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)

    tok = AutoTokenizer.from_pretrained(NAME)
    ds = Paths(a.table, tok)
    sampler = DistributedSampler(ds, shuffle=True, seed=11)
    dl = DataLoader(ds, a.micro_batch, sampler=sampler, drop_last=True, num_workers=2,
                    pin_memory=True, collate_fn=functools.partial(collate, pad=tok.pad_token_id))

    net = DistributedDataParallel(PathGrader(NAME).cuda(), device_ids=[local])
    accum = a.global_batch // (a.micro_batch * world)
    opt = torch.optim.AdamW(net.parameters(), lr=a.lr, fused=True)
    total = a.epochs * (len(dl) // accum)
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for i, (ids, mask, y) in enumerate(dl):
            ids, mask, y = (t.cuda(non_blocking=True) for t in (ids, mask, y))
            last = (i + 1) % accum == 0
            net.require_backward_grad_sync = last
            with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "bf16"):
                pred = net(ids, mask)
            loss = torch.nn.functional.mse_loss(pred.float(), y)
            (loss / (accum * world)).backward()
            if last:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                if dist.get_rank() == 0 and (i + 1) // accum % 25 == 0:
                    print(f"epoch {epoch} update {(i + 1) // accum} mse {loss.item():.4f}", flush=True)

    if dist.get_rank() == 0:
        a.out.mkdir(parents=True, exist_ok=True)
        torch.save(net.module.state_dict(), a.out / "pytorch_model.bin")
        tok.save_pretrained(a.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
