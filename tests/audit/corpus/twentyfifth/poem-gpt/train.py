import argparse
import os
import time
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2TokenizerFast

from model import GPTConfig, PoemGPT

tok = GPT2TokenizerFast.from_pretrained("gpt2")


class Poems(Dataset):
    def __init__(self, folder, block_size):
        self.texts = [p.read_text() for p in sorted(Path(folder).glob("*.txt"))]
        self.block_size = block_size

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = tok(self.texts[i], truncation=True, max_length=self.block_size - 1)["input_ids"]
        return torch.tensor(ids + [tok.eos_token_id])


def collate(rows):
    ids = pad_sequence(rows, batch_first=True, padding_value=0)
    labels = pad_sequence(rows, batch_first=True, padding_value=-100)
    return ids, labels


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="poems")
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch_size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--ckpt", default="ckpt.pt")
    args = ap.parse_args()

    cfg = GPTConfig()
    loader = DataLoader(
        Poems(args.data, cfg.block_size),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        drop_last=True,
        collate_fn=collate,
    )
    model = PoemGPT(cfg).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs * len(loader))

    start = 0
    if os.path.exists(args.ckpt):
        state = torch.load(args.ckpt, map_location="cuda", weights_only=True)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start = state["epoch"] + 1

    step, tokens, running = 0, 0, 0.0
    t0 = time.time()
    for epoch in range(start, args.epochs):
        for ids, labels in loader:
            ids = ids.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                _, loss = model(ids, labels != -100, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)

            running += loss.item()
            tokens += ids.numel()
            step += 1
            if step % 50 == 0:
                rate = tokens / (time.time() - t0)
                print(f"epoch {epoch} step {step} loss {running / 50:.3f} {rate:,.0f} tok/s")
                running = 0.0
        torch.save(
            {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch},
            args.ckpt,
        )


if __name__ == "__main__":
    main()
