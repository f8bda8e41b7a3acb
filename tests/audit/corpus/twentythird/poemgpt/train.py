import argparse
import os

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from data import PoemDataset, collate
from model import PoemGPT


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/poems.jsonl")
    p.add_argument("--out", default="runs/poem")
    p.add_argument("--block", type=int, default=512)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--bf16", action="store_true", help="train in bfloat16")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    device = torch.device("cuda")
    os.makedirs(args.out, exist_ok=True)

    tok = AutoTokenizer.from_pretrained("gpt2")
    ds = PoemDataset(args.data, tok, args.block)
    loader = DataLoader(
        ds,
        batch_size=args.batch,
        shuffle=True,
        num_workers=0,
        pin_memory=True,
        drop_last=True,
        collate_fn=lambda rows: collate(rows, tok.eos_token_id),
    )

    model = PoemGPT(len(tok), width=768, depth=12, heads=12, block=args.block).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    start = 0
    if args.resume:
        ck = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        start = ck["epoch"] + 1

    for epoch in range(start, args.epochs):
        model.train()
        running = 0.0
        for step, (ids, labels) in enumerate(loader):
            ids = ids.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            loss = model(ids, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            running += loss.item()
            if (step + 1) % 100 == 0:
                print(f"epoch {epoch} step {step + 1} loss {running / 100:.4f}")
                running = 0.0
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, f"{args.out}/last.pt")

    save_file(model.state_dict(), f"{args.out}/model.safetensors")


if __name__ == "__main__":
    main()
