import argparse
import time

import torch
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from data import build_dataset
from model import build_model


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="gpt2-medium")
    p.add_argument("--data", default="poems.jsonl")
    p.add_argument("--out", default="out")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--seed", type=int, default=1234)
    return p.parse_args()


def main():
    args = get_args()
    set_seed(args.seed)
    device = torch.device("cuda")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.eos_token
    dataset = build_dataset(args.data, tokenizer)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
        pin_memory=True,
    )

    model = build_model(args.model).to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total_steps = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * total_steps), total_steps)

    progress = tqdm(total=total_steps)
    running = 0.0
    seen_tokens = 0
    start = None
    step = 0
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
            running = 0.95 * running + 0.05 * loss.item()
            progress.update(1)
            if step == 20:
                torch.cuda.synchronize()
                start = time.perf_counter()
            elif step > 20:
                seen_tokens += batch["input_ids"].numel()
            if step % 50 == 0:
                torch.cuda.synchronize()
                rate = seen_tokens / (time.perf_counter() - start)
                progress.set_postfix(loss=f"{running:.3f}", tokens_per_s=f"{rate:.0f}")

        model.save_pretrained(f"{args.out}/epoch-{epoch}")
        tokenizer.save_pretrained(f"{args.out}/epoch-{epoch}")


if __name__ == "__main__":
    main()
