"""Print the length statistics quoted in the README."""
import sys

import numpy as np
from datasets import load_dataset
from transformers import AutoTokenizer

from . import MODEL
from .data import PROMPT


def main(path: str) -> None:
    tok = AutoTokenizer.from_pretrained(MODEL)
    ds = load_dataset("json", data_files=path, split="train")
    n = np.array([
        len(tok(PROMPT.format(notes=r["notes"]) + r["letter"] + tok.eos_token)["input_ids"])
        for r in ds
    ])
    q = np.percentile(n, [50, 90, 99]).astype(int)
    print(f"{path}: {len(n)} rows, mean {n.mean():.0f}, p50/p90/p99 {q.tolist()}, max {n.max()}")


if __name__ == "__main__":
    main(sys.argv[1])
