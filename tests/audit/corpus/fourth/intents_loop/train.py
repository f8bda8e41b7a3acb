"""Intent labelling with a small decoder. One GPU, no trainer library."""
import argparse
import os
import random
import time
from functools import partial

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import collate, length_buckets, read_rows

BASE = "HuggingFaceTB/SmolLM2-360M"
LOG_EVERY = 10
WARMUP_STEPS_NOT_TIMED = 5


def lr_at(step, total, peak):
    warm = max(1, total // 20)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * max(0.0, (total - step) / (total - warm))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/intents.jsonl")
    p.add_argument("--out", default="out")
    p.add_argument("--epochs", type=int, default=8)
    # with two hundred rows a larger batch would leave hardly any updates
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-5)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()

    random.seed(a.seed)
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.eos_token
    rows = read_rows(a.data, tokenizer)

    state_file = os.path.join(a.out, "state.pt")
    resume = os.path.exists(state_file)
    model = AutoModelForCausalLM.from_pretrained(a.out if resume else BASE, dtype=torch.float32).to(device)
    model.config.use_cache = False
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01, fused=True)
    epoch0 = step = 0
    if resume:
        state = torch.load(state_file, map_location=device, weights_only=True)
        opt.load_state_dict(state["opt"])
        epoch0, step = state["epoch"] + 1, state["step"]

    per_epoch = (len(rows) + a.batch - 1) // a.batch
    total = per_epoch * a.epochs
    loss_sum = torch.zeros((), device=device)
    tokens, t0, timed_from = 0, None, step + WARMUP_STEPS_NOT_TIMED

    for epoch in range(epoch0, a.epochs):
        # num_workers=0 is meant: a few hundred lists of ints are already in memory
        # and collating a batch of them takes microseconds.
        loader = DataLoader(
            rows,
            batch_sampler=length_buckets(rows, a.batch, a.seed + epoch),
            collate_fn=partial(collate, pad_id=tokenizer.pad_token_id),
            num_workers=0,
            pin_memory=True,
        )
        for batch in loader:
            real = int(batch["attention_mask"].sum())  # still on the CPU, costs no sync
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            for g in opt.param_groups:
                g["lr"] = lr_at(step, total, a.lr)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            loss_sum += loss.detach()
            step += 1
            if step == timed_from:
                torch.cuda.synchronize()
                t0, tokens = time.perf_counter(), 0
            elif t0 is not None:
                tokens += real
            if step % LOG_EVERY == 0:
                value = loss_sum.item() / LOG_EVERY
                loss_sum.zero_()
                speed = f", {tokens / (time.perf_counter() - t0):.0f} real tokens/s" if t0 and tokens else ""
                print(f"epoch {epoch} step {step}/{total} loss {value:.4f}{speed}", flush=True)
        model.save_pretrained(a.out)
        tokenizer.save_pretrained(a.out)
        torch.save({"opt": opt.state_dict(), "epoch": epoch, "step": step}, state_file)


if __name__ == "__main__":
    main()
