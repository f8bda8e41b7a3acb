"""Execution accuracy of an adapter on the dev questions (needs the GPU box: 3B, 1 500 questions)."""
import argparse
import json
import sqlite3

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from prompts import to_messages

ap = argparse.ArgumentParser()
ap.add_argument("--adapter", default="out/sqlora-3b")
ap.add_argument("--dev", default="data/dev.jsonl")
ap.add_argument("--db", default="data/warehouse.sqlite")
ap.add_argument("--bs", type=int, default=16)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(args.adapter, padding_side="left")
model = AutoPeftModelForCausalLM.from_pretrained(args.adapter, dtype=torch.bfloat16).eval()
rows = [json.loads(line) for line in open(args.dev)]
con = sqlite3.connect(f"file:{args.db}?mode=ro", uri=True)


def run(sql):
    try:
        return sorted(map(repr, con.execute(sql).fetchall()))
    except sqlite3.Error:
        return None


hits = 0
for s in range(0, len(rows), args.bs):
    part = rows[s : s + args.bs]
    enc = tok.apply_chat_template(
        [to_messages(r, with_answer=False) for r in part],
        add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=256, do_sample=False)
    texts = tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    for r, t in zip(part, texts):
        gold = run(r["sql"])
        hits += gold is not None and run(t) == gold
print(f"execution accuracy {hits / len(rows):.3f}")
