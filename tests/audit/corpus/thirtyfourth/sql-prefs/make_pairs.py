"""samples.jsonl: {"db": ..., "ddl": ..., "question": ..., "samples": [{"sql": ..., "ok": true}, ...]}"""
import hashlib
import json
import os
import random
import sys

from transformers import AutoTokenizer

SYSTEM = "Answer with one SQL statement and nothing else."
LIMIT = 2048


def main(src, dst):
    tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-Coder-3B-Instruct")
    rng = random.Random(13)
    os.makedirs(dst, exist_ok=True)
    out = {k: open(f"{dst}/{k}.jsonl", "w") for k in ("train", "eval")}
    seen, long = set(), 0
    with open(src) as f:
        for r in map(json.loads, f):
            good = sorted({s["sql"].strip() for s in r["samples"] if s["ok"]})
            bad = sorted({s["sql"].strip() for s in r["samples"] if not s["ok"]} - set(good))
            key = (r["db"], r["question"])
            if not good or not bad or key in seen:
                continue
            seen.add(key)
            prompt = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"{r['ddl']}\n\n{r['question']}"},
            ]
            chosen, rejected = rng.choice(good), rng.choice(bad)
            head = len(tok.apply_chat_template(prompt, add_generation_prompt=True))
            tail = max(len(tok(chosen)["input_ids"]), len(tok(rejected)["input_ids"]))
            if head > LIMIT - 512 or tail > 500:
                long += 1
                continue
            held = int(hashlib.sha1(r["db"].encode()).hexdigest(), 16) % 20 == 0
            row = {
                "prompt": prompt,
                "chosen": [{"role": "assistant", "content": chosen}],
                "rejected": [{"role": "assistant", "content": rejected}],
            }
            out["eval" if held else "train"].write(json.dumps(row) + "\n")
    print(f"{len(seen) - long} pairs, {long} too long")


if __name__ == "__main__":
    main(*sys.argv[1:3])
