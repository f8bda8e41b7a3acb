import argparse
import math
import os

import torch
from safetensors.torch import load_file, save_file

from data import packed_loader
from model import LMConfig, TinyLM


def lr_at(step, total, peak=6e-4, warmup=500):
    if step < warmup:
        return peak * (step + 1) / warmup
    t = (step - warmup) / max(1, total - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * t)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokens", default="tokens.bin")
    ap.add_argument("--out", default="out")
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--seq-len", type=int, default=1024)
    ap.add_argument("--save-every", type=int, default=1000)
    args = ap.parse_args()

    os.makedirs(args.out, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    loader = packed_loader(args.tokens, args.seq_len, args.batch_size)
    model = TinyLM(LMConfig(), max_len=args.seq_len).cuda()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=6e-4, betas=(0.9, 0.95), fused=True,
    )

    weights, state = os.path.join(args.out, "model.safetensors"), os.path.join(args.out, "state.pt")
    step, first_epoch = 0, 0
    if os.path.exists(state):
        model.load_state_dict(load_file(weights))
        saved = torch.load(state, map_location="cpu", weights_only=True)
        opt.load_state_dict(saved["opt"])
        step = saved["step"]
        first_epoch = step // len(loader)

    total = args.epochs * len(loader)
    for epoch in range(first_epoch, args.epochs):
        for x, y in loader:
            for g in opt.param_groups:
                g["lr"] = lr_at(step, total)
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} norm {norm.item():.2f}")
            if step % args.save_every == 0 or step == total:
                save_file(model.state_dict(), weights)
                torch.save({"opt": opt.state_dict(), "step": step}, state)


if __name__ == "__main__":
    main()
