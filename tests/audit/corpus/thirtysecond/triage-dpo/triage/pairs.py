"""Nurse preferences -> prompt / chosen / rejected."""
import hashlib

from datasets import load_dataset

SYSTEM = "You sort incoming patient messages. Answer with an urgency level and one sentence of reasoning."


def _bucket(case_id):
    return int(hashlib.sha1(case_id.encode()).hexdigest(), 16) % 100


def _shape(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["message"]},
        ],
        "chosen": [{"role": "assistant", "content": row["better"]}],
        "rejected": [{"role": "assistant", "content": row["worse"]}],
    }


def load_pairs(path):
    ds = load_dataset("json", data_files=path, split="train")
    ds = ds.filter(lambda r: r["better"].strip() != r["worse"].strip())
    # several pairs per case: keep a case on one side
    train = ds.filter(lambda r: _bucket(r["case_id"]) >= 4)
    test = ds.filter(lambda r: _bucket(r["case_id"]) < 4)
    cols = ds.column_names
    return train.map(_shape, remove_columns=cols), test.map(_shape, remove_columns=cols)
