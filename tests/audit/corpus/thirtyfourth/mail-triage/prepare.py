import argparse

from datasets import load_dataset
from transformers import AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("--csv", required=True)
p.add_argument("--out", required=True)
a = p.parse_args()

tok = AutoTokenizer.from_pretrained("roberta-base")
ds = load_dataset("csv", data_files=a.csv, split="train").class_encode_column("queue")
ds = ds.filter(lambda r: bool(r["body"]))


def encode(batch):
    text = [f"{s or ''}\n{b}" for s, b in zip(batch["subject"], batch["body"])]
    enc = tok(text, truncation=True, max_length=384)
    enc["labels"] = batch["queue"]
    return enc


ds = ds.train_test_split(test_size=0.05, seed=3, stratify_by_column="queue")
ds = ds.map(encode, batched=True, remove_columns=ds["train"].column_names)
ds.save_to_disk(a.out)
