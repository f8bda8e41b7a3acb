import argparse
import itertools
import json
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-0.5B"


def read(path, tok, limit):
    with open(path, encoding="utf-8") as f:
        texts = [json.loads(line)["text"] + tok.eos_token for line in f]
    return tok(texts, truncation=True, max_length=limit)["input_ids"]


def make_collate(tok):
    def collate(rows):
        enc = tok.pad({"input_ids": rows}, padding="longest", return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return dict(enc)

    return collate


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="data/web.jsonl")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--seed", type=int, default=5)
    a = ap.parse_args()
    torch.manual_seed(a.seed)

    tok = AutoTokenizer.from_pretrained(MODEL)
    rows = read(a.data, tok, 1024)
    loader = DataLoader(rows, batch_size=a.batch, shuffle=True, drop_last=True, collate_fn=make_collate(tok), pin_memory=True)
    model = AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="sdpa").cuda().train()
    model = torch.compile(model, dynamic=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    tokens = 0
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for batch in itertools.islice(itertools.cycle(loader), a.steps):
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        tokens += batch["input_ids"].numel()
    torch.cuda.synchronize()
    took = time.perf_counter() - begin

    print(f"batch {a.batch}: {a.steps / took:.2f} it/s, {tokens / took:,.0f} training tokens/s")


if __name__ == "__main__":
    main()
