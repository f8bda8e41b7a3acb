import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms as T

from leafnet.model import LeafNet

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def loaders(root, batch):
    train_tf = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
    val_tf = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)])
    train = datasets.ImageFolder(os.path.join(root, "train"), train_tf)
    val = datasets.ImageFolder(os.path.join(root, "val"), val_tf)
    sampler = DistributedSampler(train, shuffle=True, drop_last=True)
    train_dl = DataLoader(train, batch_size=batch, sampler=sampler, num_workers=0, drop_last=True)
    val_dl = DataLoader(
        val, batch_size=batch, sampler=DistributedSampler(val, shuffle=False), num_workers=4, pin_memory=True
    )
    return train_dl, sampler, val_dl, len(train.classes)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros(2, device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        hits[0] += (model(x).argmax(1) == y).sum()
        hits[1] += y.numel()
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default="checkpoints/last.pt")
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.manual_seed(args.seed + rank)
    torch.backends.cudnn.benchmark = True

    train_dl, sampler, val_dl, classes = loaders(args.root, args.batch)
    model = LeafNet(classes).to(device)
    model = DDP(model, device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train_dl))

    first = 0
    if os.path.exists(args.out):
        state = torch.load(args.out, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first = state["epoch"] + 1

    start, step = time.time(), 0
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_dl:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            sched.step()
            step += 1
            if step == 50 and rank == 0:
                done = step * args.batch * dist.get_world_size()
                print(f"{done / (time.time() - start):.0f} images/s")
            if step % 100 == 0 and rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        acc = evaluate(model, val_dl, device)
        if rank == 0:
            print(f"epoch {epoch} val accuracy {acc:.4f}")
            os.makedirs(os.path.dirname(args.out), exist_ok=True)
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "opt": opt.state_dict(),
                    "sched": sched.state_dict(),
                    "epoch": epoch,
                },
                args.out,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
