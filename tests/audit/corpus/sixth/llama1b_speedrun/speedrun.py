"""One finetuning run, or with --bench N a speed measurement over N updates."""
import argparse
import time

import torch
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup

import common


def args_():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--out", default="runs/default")
    p.add_argument("--amp", default="off", choices=["off", "bf16"])
    p.add_argument("--compile", action="store_true")
    p.add_argument("--bs", type=int, default=16)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--bench", type=int, default=0)
    return p.parse_args()


def main():
    a = args_()
    common.seed_all(a.seed)
    tok, model = common.load(a.compile)
    n_params = sum(p.numel() for p in model.parameters())

    rows = common.read_tokens(a.data, tok, a.max_len)
    dl = DataLoader(rows, batch_size=a.bs, shuffle=True, collate_fn=common.collate(tok.pad_token_id),
                    pin_memory=True, drop_last=True)

    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01, foreach=False)
    total = a.bench or len(dl) * a.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    amp = a.amp == "bf16"

    model.train()
    step, tokens = 0, torch.zeros((), dtype=torch.long)
    t0 = time.time()
    while step < total:
        for batch in dl:
            tokens += batch["attention_mask"].sum()
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if not a.bench and step % 50 == 0:
                print(f"{step}/{total} {loss.item():.4f}", flush=True)
            if step == total:
                break

    if a.bench:
        tps = tokens.item() / (time.time() - t0)
        mfu = 6 * n_params * tps / (common.PEAK_TFLOPS * 1e12)
        print(f"{tps:,.0f} tok/s  MFU {mfu:.1%}")
        return
    raw = getattr(model, "_orig_mod", model)
    raw.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
