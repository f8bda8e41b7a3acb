import argparse
import math
import random
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from data import BOS, EOS, Molecules, Vocabulary, collate
from model import SmilesLM


def lr_at(step, warmup=20_000, total=1_000_000):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (total - warmup))))


@torch.no_grad()
def sample(model, vocabulary, device, limit=200):
    ids = torch.tensor([[BOS]], device=device)
    for _ in range(limit):
        logits, _ = model(ids)
        following = torch.multinomial(logits[:, -1].float().softmax(-1), 1)
        if following.item() == EOS:
            break
        ids = torch.cat([ids, following], 1)
    return vocabulary.decode(ids[0].tolist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("smiles")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--lr", type=float, default=4e-4)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")

    lines = sorted(set(Path(args.smiles).read_text().split()))
    random.shuffle(lines)
    vocabulary = Vocabulary(lines)
    loader = DataLoader(
        Molecules(lines, vocabulary), args.batch_size, shuffle=True, drop_last=True, collate_fn=collate, pin_memory=True
    )
    raw = SmilesLM(len(vocabulary)).to(device)
    model = torch.compile(raw, dynamic=False)
    optimizer = torch.optim.AdamW(raw.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_at)

    step, tokens, start = 0, 0, time.perf_counter()
    while step < args.steps:
        for ids, targets in loader:
            ids, targets = ids.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                _, loss = model(ids, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            tokens += ids.numel()
            if step % 100 == 0:
                seconds = time.perf_counter() - start
                print(f"step {step} loss {loss.item():.4f} tokens/s {tokens / seconds:,.0f}", flush=True)
                tokens, start = 0, time.perf_counter()
            if step % 2000 == 0:
                raw.eval()
                print([sample(raw, vocabulary, device) for _ in range(4)], flush=True)
                raw.train()
                torch.save({"model": raw.state_dict(), "chars": vocabulary.chars, "step": step}, "smiles.pt")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
