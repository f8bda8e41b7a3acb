import argparse
import math
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from poems import PoemDataset


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="gpt2-medium")
    ap.add_argument("--data", default="poems.jsonl")
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=3e-5)
    ap.add_argument("--block", type=int, default=1024)
    ap.add_argument("--warmup", type=int, default=100)
    ap.add_argument("--seed", type=int, default=1234)
    ap.add_argument("--out", default="poem-lm.pt")
    return ap.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model).to(device)
    model.train()

    ds = PoemDataset(args.data, tok, args.block)
    loader = DataLoader(
        ds,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, args.warmup, total)

    step, tokens, start = 0, 0, time.time()
    for epoch in range(args.epochs):
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)

            step += 1
            tokens += batch["input_ids"].numel()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} ppl {math.exp(loss.item()):.2f}")

        rate = tokens / (time.time() - start)
        print(f"epoch {epoch} done, {rate:.0f} training tokens/s")

    torch.save(model, args.out)


if __name__ == "__main__":
    main()
