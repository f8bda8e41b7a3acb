import argparse
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_rows(path, tok, max_len=64):
    poems = Path(path).read_text(encoding="utf-8").split("\n\n")
    rows = []
    for poem in poems:
        ids = tok(poem.strip() + tok.eos_token, truncation=True, max_length=max_len)["input_ids"]
        rows.append(torch.tensor(ids))
    return rows


def collate(rows):
    width = max(r.numel() for r in rows)
    ids = torch.full((len(rows), width), 50256)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : r.numel()] = r
        labels[i, : r.numel()] = r
        mask[i, : r.numel()] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--bs", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-5)
    ap.add_argument("--workers", type=int, default=16)
    ap.add_argument("--out", default="haiku-model")
    args = ap.parse_args()

    device = torch.device("cuda")
    tok = AutoTokenizer.from_pretrained("openai-community/gpt2")
    model = AutoModelForCausalLM.from_pretrained("openai-community/gpt2").to(device)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    rows = load_rows(args.data, tok)
    loader = DataLoader(
        rows,
        batch_size=args.bs,
        shuffle=True,
        collate_fn=collate,
        num_workers=args.workers,
        pin_memory=True,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)

    start_epoch = 0
    ckpt = Path(args.out) / "state.pt"
    if ckpt.exists():
        state = torch.load(ckpt, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        start_epoch = state["epoch"] + 1

    Path(args.out).mkdir(exist_ok=True)
    for epoch in range(start_epoch, args.epochs):
        running, tokens, t0 = 0.0, 0, time.time()
        for step, batch in enumerate(loader):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

            running += loss.item()
            tokens += batch["input_ids"].numel()
            if (step + 1) % 100 == 0:
                torch.cuda.synchronize()
                rate = tokens / (time.time() - t0)
                print(f"epoch {epoch} step {step + 1} loss {running / (step + 1):.3f} {rate:.0f} tokens of poetry/s")
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, ckpt)

    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
