import argparse
import os
import random
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

NAME = "HuggingFaceTB/SmolLM2-135M"


def batches(data, block, bs, rng):
    """Blocks straight from the memory map: nothing to decode, so no worker processes."""
    n = (len(data) - 1) // block
    order = rng.permutation(n)
    for i in range(0, n - bs + 1, bs):
        rows = [data[j * block: (j + 1) * block].astype(np.int64) for j in order[i:i + bs]]
        yield torch.from_numpy(np.stack(rows)).pin_memory()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bin", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--block", type=int, default=2048)
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--log-every", type=int, default=20, help="in updates")
    ap.add_argument("--save-every", type=int, default=500, help="in updates")
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(args.out, exist_ok=True)

    data = np.memmap(args.bin, dtype=np.uint16, mode="r")
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="sdpa").to("cuda")
    model.config.use_cache = False
    model.train()

    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=True,
    )
    per_epoch = ((len(data) - 1) // args.block // args.bs) // args.accum
    total = per_epoch * args.epochs
    sched = get_cosine_schedule_with_warmup(opt, min(200, total // 10), total)

    update, state_file = 0, os.path.join(args.out, "last.pt")
    if os.path.exists(state_file):
        st = torch.load(state_file, map_location="cpu", weights_only=True)
        model.load_state_dict(st["model"])
        opt.load_state_dict(st["opt"])
        sched.load_state_dict(st["sched"])
        update = st["update"]

    loss_sum = torch.zeros((), device="cuda")
    window, t0 = 0, time.perf_counter()
    for epoch in range(update // per_epoch, args.epochs):
        rng = np.random.default_rng(args.seed + epoch)
        skip = (update - epoch * per_epoch) * args.accum
        for i, ids in enumerate(batches(data, args.block, args.bs, rng)):
            if i < skip:
                continue
            if i >= per_epoch * args.accum:
                break
            ids = ids.to("cuda", non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            (loss / args.accum).backward()
            loss_sum += loss.detach() / args.accum
            if (i + 1) % args.accum:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            update += 1
            window += 1
            if update % args.log_every == 0:
                mean = loss_sum.item() / window
                dt = time.perf_counter() - t0
                tps = window * args.accum * args.bs * args.block / dt
                print(f"{update}/{total} loss {mean:.4f} {tps:,.0f} tok/s", flush=True)
                loss_sum.zero_()
                window, t0 = 0, time.perf_counter()
            if update % args.save_every == 0:
                tmp = state_file + ".tmp"
                torch.save({"model": model.state_dict(), "opt": opt.state_dict(),
                            "sched": sched.state_dict(), "update": update}, tmp)
                os.replace(tmp, state_file)
                t0, window = time.perf_counter(), 0
                loss_sum.zero_()

    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
