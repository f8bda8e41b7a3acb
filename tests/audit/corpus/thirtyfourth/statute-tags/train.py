import argparse
import os
import random

import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader, Sampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

NAME, TAGS = "microsoft/deberta-v3-small", 42


class Buckets(Sampler):
    """Sorts windows of 50 batches by length; batches come in random order."""

    def __init__(self, lengths, size, seed):
        self.lengths, self.size, self.seed, self.epoch = lengths, size, seed, 0

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        rng = random.Random(self.seed + self.epoch)
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        order = order[: len(self) * self.size]
        batches, window = [], 50 * self.size
        for i in range(0, len(order), window):
            part = sorted(order[i : i + window], key=self.lengths.__getitem__)
            batches += [part[j : j + self.size] for j in range(0, len(part), self.size)]
        rng.shuffle(batches)
        return iter(batches)


@torch.no_grad()
def micro_f1(model, loader):
    model.eval()
    tp = fp = fn = torch.zeros((), device="cuda")
    for batch in loader:
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        gold = batch.pop("labels").bool()
        with torch.autocast("cuda", dtype=torch.float16):
            pred = model(**batch).logits > 0
        tp = tp + (pred & gold).sum()
        fp = fp + (pred & ~gold).sum()
        fn = fn + (~pred & gold).sum()
    model.train()
    return (2 * tp / (2 * tp + fp + fn).clamp(min=1)).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=4e-5)
    p.add_argument("--resume", action="store_true")
    a = p.parse_args()

    torch.manual_seed(0)
    os.makedirs(a.out, exist_ok=True)
    tok = AutoTokenizer.from_pretrained(NAME)
    train, val = load_from_disk(f"{a.data}/train"), load_from_disk(f"{a.data}/val")
    lengths = list(train["length"])
    train, val = train.remove_columns("length"), val.remove_columns("length")

    def collate(rows):
        return tok.pad(rows, padding="longest", pad_to_multiple_of=8, return_tensors="pt")

    sampler = Buckets(lengths, a.batch_size, seed=0)
    loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate, num_workers=2, pin_memory=True)
    val_loader = DataLoader(val, batch_size=64, collate_fn=collate, num_workers=2, pin_memory=True)

    model = AutoModelForSequenceClassification.from_pretrained(
        NAME, num_labels=TAGS, problem_type="multi_label_classification"
    ).cuda()
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01, fused=True)
    per_epoch = len(loader) // a.accum
    sched = get_linear_schedule_with_warmup(opt, per_epoch // 4, per_epoch * a.epochs)
    scaler = torch.amp.GradScaler("cuda")

    first, best, state_file = 0, 0.0, f"{a.out}/state.pt"
    if a.resume and os.path.exists(state_file):
        s = torch.load(state_file, map_location="cpu", weights_only=True)
        model.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        sched.load_state_dict(s["sched"])
        scaler.load_state_dict(s["scaler"])
        first, best = s["epoch"] + 1, s["best"]

    for epoch in range(first, a.epochs):
        sampler.epoch = epoch
        total = torch.zeros((), device="cuda")
        for i, batch in enumerate(loader):
            if i == per_epoch * a.accum:
                break
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss
            scaler.scale(loss / a.accum).backward()
            total += loss.detach()
            if (i + 1) % a.accum:
                continue
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            sched.step()
            if (i + 1) % (100 * a.accum) == 0:
                print(f"epoch {epoch} batch {i + 1} loss {total.item() / (i + 1):.4f}", flush=True)

        f1 = micro_f1(model, val_loader)
        print(f"epoch {epoch} micro-F1 {f1:.4f}", flush=True)
        if f1 > best:
            best = f1
            model.save_pretrained(f"{a.out}/best")
            tok.save_pretrained(f"{a.out}/best")
        torch.save(
            {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
             "scaler": scaler.state_dict(), "epoch": epoch, "best": best},
            state_file,
        )


if __name__ == "__main__":
    main()
