"""Tokenise once, pack greedily to SEQ tokens, write an .npz shard that train.py maps.

    python pack.py --in data/chats.jsonl --out data/packed --seq 8192
"""
import argparse
import json
import os

import numpy as np
from transformers import AutoTokenizer

IGNORE = -100


def encode(tok, messages):
    ids, labels = [], []
    for i, m in enumerate(messages):
        full = tok.apply_chat_template(messages[: i + 1], tokenize=True)
        new = full[len(ids):]
        ids.extend(new)
        if m["role"] == "assistant":
            head = len(tok("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"])
            labels.extend([IGNORE] * head + new[head:])
        else:
            labels.extend([IGNORE] * len(new))
    return ids, labels


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--in", dest="src", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--seq", type=int, default=8192)
    a = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)

    docs = []
    with open(a.src, encoding="utf-8") as f:
        for line in f:
            ids, labels = encode(tok, json.loads(line)["messages"])
            if len(ids) > a.seq or all(x == IGNORE for x in labels):
                continue
            labels[0] = IGNORE  # nothing may be predicted from the document before
            docs.append((ids, labels))
    docs.sort(key=lambda d: -len(d[0]))

    bins = []  # best fit decreasing, over the last 512 open bins
    for ids, labels in docs:
        best = None
        for b in bins[-512:]:
            if b["n"] + len(ids) <= a.seq and (best is None or b["n"] > best["n"]):
                best = b
        if best is None:
            best = {"n": 0, "ids": [], "labels": [], "pos": []}
            bins.append(best)
        best["n"] += len(ids)
        best["ids"] += ids
        best["labels"] += labels
        best["pos"] += list(range(len(ids)))

    os.makedirs(a.out, exist_ok=True)
    offs = np.cumsum([0] + [b["n"] for b in bins])
    np.save(f"{a.out}/ids.npy", np.concatenate([np.array(b["ids"], dtype=np.int32) for b in bins]))
    np.save(f"{a.out}/labels.npy", np.concatenate([np.array(b["labels"], dtype=np.int32) for b in bins]))
    np.save(f"{a.out}/pos.npy", np.concatenate([np.array(b["pos"], dtype=np.int32) for b in bins]))
    np.save(f"{a.out}/offsets.npy", offs)
    print(f"{len(docs)} documents in {len(bins)} rows, {offs[-1] / (len(bins) * a.seq):.1%} full")


if __name__ == "__main__":
    main()
