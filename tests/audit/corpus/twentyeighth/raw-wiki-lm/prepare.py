import argparse

import numpy as np
from transformers import AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--text", required=True, help="one article a line")
ap.add_argument("--out", required=True)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM2-135M")
with open(args.text, encoding="utf-8") as f, open(args.out, "wb") as out:
    batch = []
    for line in f:
        batch.append(line.rstrip("\n"))
        if len(batch) == 1000:
            for ids in tok(batch)["input_ids"]:
                np.array(ids + [tok.eos_token_id], dtype=np.uint16).tofile(out)
            batch = []
    for ids in tok(batch)["input_ids"] if batch else []:
        np.array(ids + [tok.eos_token_id], dtype=np.uint16).tofile(out)
