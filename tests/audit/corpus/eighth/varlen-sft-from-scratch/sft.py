import math
import os
import random
import sys
import time

import numpy as np
import torch
from liger_kernel.transformers import AutoLigerKernelForCausalLM
from transformers import AutoTokenizer

BASE = "Qwen/Qwen2.5-3B"
ROW = 16384
ROWS_PER_UPDATE = 4
EPOCHS = 2
LR = 1e-5
WARMUP = 15
SEED = 2025
SKIP_TIMING = 10      # updates before the clock starts


class Rows:
    """First-fit rows of at most ROW tokens; another shuffle in each epoch."""

    def __init__(self, path):
        z = np.load(path)
        self.ids, self.keep, self.off = z["ids"], z["keep"], z["offsets"]

    def epoch(self, e):
        order = list(range(len(self.off) - 1))
        random.Random(SEED + e).shuffle(order)
        bins, room = [], []
        for i in order:
            n = int(self.off[i + 1] - self.off[i])
            for b in range(max(0, len(bins) - 64), len(bins)):
                if room[b] >= n:
                    bins[b].append(i)
                    room[b] -= n
                    break
            else:
                bins.append([i])
                room.append(ROW - n)
        return bins

    def row(self, members):
        ids = np.concatenate([self.ids[self.off[i]:self.off[i + 1]] for i in members]).astype(np.int64)
        keep = np.concatenate([self.keep[self.off[i]:self.off[i + 1]] for i in members]).astype(bool)
        pos = np.concatenate([np.arange(self.off[i + 1] - self.off[i]) for i in members])
        labels = np.where(keep, ids, -100)
        t = [torch.from_numpy(x)[None].pin_memory().to("cuda", non_blocking=True) for x in (ids, labels, pos)]
        return dict(input_ids=t[0], labels=t[1], position_ids=t[2]), int(keep.sum()), len(ids)


def build():
    # bf16 forward under autocast, fp32 weights; fused linear + cross entropy, so no (16384, 151936) logits
    model = AutoLigerKernelForCausalLM.from_pretrained(BASE, torch_dtype=torch.float32, attn_implementation="flash_attention_2")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.cuda().train()


def schedule(step, total):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, total - WARMUP)))


@torch.no_grad()
def check(model, rows):
    """Packed row against single conversations."""
    model.eval()
    members = rows.epoch(0)[0][:5]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        both = model(**{k: v for k, v in rows.row(members)[0].items() if k != "labels"}).logits[0]
        at = 0
        for i in members:
            alone = model(**{k: v for k, v in rows.row([i])[0].items() if k != "labels"}).logits[0]
            print(i, (both[at:at + len(alone)] - alone).abs().max().item())
            at += len(alone)


def main():
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = True
    if sys.argv[1] == "--check":
        return check(build(), Rows("train.npz"))
    rows, out = Rows(sys.argv[1]), sys.argv[2]
    os.makedirs(out, exist_ok=True)
    model = build()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    plan = []
    for e in range(EPOCHS):
        bins = rows.epoch(e)
        plan += [bins[k:k + ROWS_PER_UPDATE] for k in range(0, len(bins) - ROWS_PER_UPDATE + 1, ROWS_PER_UPDATE)]
    step, state = 0, os.path.join(out, "resume.pt")
    if os.path.exists(state):
        s = torch.load(state, map_location="cuda", weights_only=True)
        model.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        step = s["step"]
        del s
    first, seen, t0 = step, 0, None
    running = torch.zeros((), device="cuda")
    for step in range(step, len(plan)):
        made = [rows.row(m) for m in plan[step]]
        targets = sum(n for _, n, _ in made)
        for group in opt.param_groups:
            group["lr"] = LR * schedule(step, len(plan))
        for batch, n, _ in made:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss * (n / targets)      # mean over all targets of the update
            loss.backward()
            running += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

        if step - first == SKIP_TIMING:
            torch.cuda.synchronize()
            t0, seen = time.perf_counter(), 0
        elif t0 is not None:
            seen += sum(k for _, _, k in made)
        if (step + 1) % 10 == 0:
            mean = running.item() / 10
            running.zero_()
            speed = seen / (time.perf_counter() - t0) if t0 else float("nan")
            print(f"{step + 1}/{len(plan)} loss {mean:.4f} tokens/s {speed:,.0f}", flush=True)
        if (step + 1) % 100 == 0:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step + 1}, state + ".tmp")
            os.replace(state + ".tmp", state)

    model.save_pretrained(out, safe_serialization=True)
    AutoTokenizer.from_pretrained(BASE).save_pretrained(out)


if __name__ == "__main__":
    main()
