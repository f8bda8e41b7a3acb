import argparse
import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.utils.data import DataLoader, TensorDataset

from modeling import LabConfig, LabModel


def lr_at(step, total, peak, warmup=200):
    if step < warmup:
        return peak * (step + 1) / warmup
    return 0.5 * peak * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--windows", default="data/windows.safetensors", help="[n, 1025] token ids, already cut")
    ap.add_argument("--embeddings", default="base/embeddings.safetensors")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--out", default="lab_final.pt")
    args = ap.parse_args()

    device = torch.device("cuda")
    model = LabModel(LabConfig()).to(device)
    model.load_embeddings(load_file(args.embeddings))
    model.save_memory = True  # 24 GB card, 32 windows do not fit otherwise
    model.train()

    windows = load_file(args.windows)["ids"].long()
    loader = DataLoader(
        TensorDataset(windows), batch_size=args.batch, shuffle=True, drop_last=True, num_workers=0, pin_memory=False
    )
    total = args.epochs * len(loader)

    trainable = [p for p in model.parameters() if p.requires_grad]
    decay = [p for p in trainable if p.dim() >= 2]
    plain = [p for p in trainable if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
    )

    step = 0
    window_loss = torch.zeros((), device=device)
    for epoch in range(args.epochs):
        for (ids,) in loader:
            ids = ids.to(device, non_blocking=True)
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, total, args.lr)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            window_loss += loss.detach()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {window_loss.item() / 50:.4f}")
                window_loss.zero_()

    torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
