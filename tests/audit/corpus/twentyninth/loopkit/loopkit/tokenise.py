import argparse
import json

import numpy as np
from transformers import AutoTokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--src", required=True)
    p.add_argument("--dst", required=True)
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    args = p.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    total = 0
    with open(args.src) as src, open(args.dst, "wb") as dst:
        for line in src:
            ids = tokenizer(json.loads(line)["text"]).input_ids + [tokenizer.eos_token_id]
            np.asarray(ids, dtype=np.uint32).tofile(dst)
            total += len(ids)
    print(f"{total:,} tokens")


if __name__ == "__main__":
    main()
