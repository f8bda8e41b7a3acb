import sys

from datasets import load_dataset
from transformers import AutoTokenizer

TAGS = 42
tok = AutoTokenizer.from_pretrained("microsoft/deberta-v3-small")


def encode(batch):
    out = tok(batch["text"], truncation=True, max_length=448)
    out["labels"] = [[float(t in tags) for t in range(TAGS)] for tags in batch["tags"]]
    out["length"] = [len(i) for i in out["input_ids"]]
    return out


if __name__ == "__main__":
    src, dst = sys.argv[1:3]
    rows = load_dataset("json", data_files=src, split="train")
    statutes = sorted(set(rows["statute"]))
    held = set(statutes[::12])
    for name, keep in (("train", lambda r: r["statute"] not in held), ("val", lambda r: r["statute"] in held)):
        part = rows.filter(keep)
        part.map(encode, batched=True, remove_columns=part.column_names).save_to_disk(f"{dst}/{name}")
