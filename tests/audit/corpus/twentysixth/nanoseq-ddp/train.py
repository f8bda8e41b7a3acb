import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence

from model import NanoSeq

SEED, BATCH, EPOCHS, LR, WARMUP, WARM_STEPS, LOG = 5, 64, 10, 4e-4, 400, 20, 100
CKPT = "last.pt"


def epoch_batches(seqs, epoch, rank, world):
    """Rows of like length share a batch; the order of batches is shuffled; the same on all ranks."""
    g = torch.Generator().manual_seed(SEED + epoch)
    noise = torch.rand(len(seqs), generator=g)
    key = torch.tensor([len(s) for s in seqs]) + noise * 16
    groups = key.argsort().split(BATCH)
    groups = [groups[i] for i in torch.randperm(len(groups), generator=g)]
    groups = groups[: len(groups) // world * world]
    for idx in groups[rank::world]:
        yield pad_sequence([seqs[i].long() for i in idx.tolist()], batch_first=True, padding_value=0)


def main(path):
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(SEED)
    seqs = torch.load(path, weights_only=True)

    net = NanoSeq().cuda()
    model = DDP(net, device_ids=[local])
    opt = torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    total = EPOCHS * (-(-len(seqs) // BATCH) // world)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / WARMUP, max(0.05, (total - s) / max(1, total - WARMUP)))
    )
    step = first = 0
    if os.path.exists(CKPT):
        st = torch.load(CKPT, map_location=f"cuda:{local}", weights_only=True)
        net.load_state_dict(st["net"])
        opt.load_state_dict(st["opt"])
        sched.load_state_dict(st["sched"])
        first, step = st["epoch"] + 1, st["step"]

    seen = timed = 0
    start = None
    loss_sum = torch.zeros((), device="cuda")
    for epoch in range(first, EPOCHS):
        for rows in epoch_batches(seqs, epoch, rank, world):
            real = int((rows != 0).sum())  # on the CPU, before the copy
            rows = rows.cuda()
            ids, labels = rows[:, :-1], rows[:, 1:].masked_fill(rows[:, 1:] == 0, -100)
            pos = torch.arange(ids.size(1), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(ids, pos, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            loss_sum += loss.detach()
            step += 1
            seen += 1
            if seen == WARM_STEPS:
                torch.cuda.synchronize()
                start = time.perf_counter()
            elif seen > WARM_STEPS:
                timed += real
            if seen % LOG == 0:
                mean = loss_sum.item() / LOG
                loss_sum.zero_()
                if rank == 0:
                    rate = timed / (time.perf_counter() - start)
                    print(f"epoch {epoch} step {step} loss {mean:.4f} real tokens/s per GPU {rate:,.0f}", flush=True)
        if rank == 0:
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                        "epoch": epoch, "step": step}, CKPT + ".tmp")
            os.replace(CKPT + ".tmp", CKPT)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
