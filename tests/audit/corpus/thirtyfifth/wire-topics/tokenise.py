import json
import sys

from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("answerdotai/ModernBERT-base")


def encode(batch):
    return tokenizer(batch["text"], truncation=True, max_length=1024)


rows = load_dataset("json", data_files=sys.argv[1], split="train")
topics = sorted({t for row in rows["topics"] for t in row})
rows = rows.map(lambda r: {"labels": [float(t in r["topics"]) for t in topics]})
rows = rows.map(encode, batched=True, num_proc=4, remove_columns=["text", "topics"])
parts = rows.train_test_split(test_size=0.1, seed=8)
parts["train"].save_to_disk(f"{sys.argv[2]}/train")
parts["test"].save_to_disk(f"{sys.argv[2]}/test")
with open(f"{sys.argv[2]}/dataset_info.json", "w") as handle:
    json.dump({"topics": topics}, handle)
