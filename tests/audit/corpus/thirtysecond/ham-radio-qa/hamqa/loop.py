import time

import torch
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup


def make_loaders(train, dev, collate, bs):
    kw = dict(batch_size=bs, collate_fn=collate, num_workers=8, pin_memory=True)
    return DataLoader(train, shuffle=True, drop_last=True, **kw), DataLoader(dev, **kw)


@torch.no_grad()
def evaluate(model, dl, dev):
    model.eval()
    tot = torch.zeros((), device=dev)
    n = torch.zeros((), device=dev)
    for b in dl:
        b = {k: v.to(dev, non_blocking=True) for k, v in b.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(**b)
        k = (b["labels"][:, 1:] != -100).sum()
        tot += out.loss.float() * k
        n += k
    model.train()
    return (tot / n).item()


def fit(model, train_dl, dev_dl, epochs, lr, dev="cuda"):
    model.to(dev).train()
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    total = epochs * len(train_dl)
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    step, avg = 0, 0.0
    for ep in range(epochs):
        t = time.perf_counter()
        for b in train_dl:
            b = {k: v.to(dev, non_blocking=True) for k, v in b.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**b).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            avg = 0.98 * avg + 0.02 * loss.item()
            if step % 100 == 0:
                print(f"ep {ep} step {step}/{total} loss {avg / (1 - 0.98 ** step):.3f}")
        print(f"epoch {ep}: dev loss {evaluate(model, dev_dl, dev):.4f}, {time.perf_counter() - t:.0f} s")
    return model
