import argparse
import math
import os

import torch
import torch.nn.functional as F
import wandb
from safetensors.torch import save_model
from torch.utils.data import DataLoader

from data import PackedDocs, collate
from model import MossConfig, MossLM


def lr_at(step, total, peak, warmup=200):
    if step < warmup:
        return peak * (step + 1) / warmup
    return 0.1 * peak + 0.45 * peak * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--lr", type=float, default=4e-4)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(args.out, exist_ok=True)
    wandb.init(project="mosslm", config=vars(args))

    cfg = MossConfig()
    model = MossLM(cfg).cuda()
    loader = DataLoader(
        PackedDocs(args.data, cfg.seq_len),
        batch_size=args.batch,
        shuffle=True,
        drop_last=True,
        num_workers=4,
        persistent_workers=True,
        pin_memory=False,
        collate_fn=collate,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    total = len(loader) * args.epochs

    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            ids, labels, pos, mask = (t.to("cuda", non_blocking=True) for t in batch)
            lr = lr_at(step, total, args.lr)
            for group in opt.param_groups:
                group["lr"] = lr
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(ids, pos, mask)
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            wandb.log({"loss": loss.item(), "grad_norm": norm.item(), "lr": lr}, step=step)
            step += 1
        save_model(model, os.path.join(args.out, "model.safetensors"))


if __name__ == "__main__":
    main()
