from functools import partial

import torch
from datasets import load_dataset

IGNORE = -100


def _encode(messages, tokenizer, max_len):
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=True, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=True)[:max_len]
    labels = [IGNORE] * min(len(prompt), len(whole)) + whole[len(prompt):]
    return whole, labels


def encode_pair(row, tokenizer, max_len):
    out = {}
    for side in ("chosen", "rejected"):
        ids, labels = _encode(row[side], tokenizer, max_len)
        out[side + "_input_ids"] = ids
        out[side + "_labels"] = labels
    return out


def load_pairs(path, tokenizer, max_len):
    ds = load_dataset("json", data_files=path, split="train")
    ds = ds.map(partial(encode_pair, tokenizer=tokenizer, max_len=max_len),
                remove_columns=ds.column_names, num_proc=8, desc="encode")
    keep = lambda r: any(t != IGNORE for t in r["chosen_labels"]) and any(t != IGNORE for t in r["rejected_labels"])
    return ds.filter(keep, num_proc=8)


class PairCollator:
    """Chosen rows first, then the rejected ones, padded to the longest of both."""

    def __init__(self, pad_id, multiple=8):
        self.pad_id, self.multiple = pad_id, multiple

    def __call__(self, rows):
        ids = [r["chosen_input_ids"] for r in rows] + [r["rejected_input_ids"] for r in rows]
        lab = [r["chosen_labels"] for r in rows] + [r["rejected_labels"] for r in rows]
        width = -(-max(map(len, ids)) // self.multiple) * self.multiple
        pad = lambda x, v: x + [v] * (width - len(x))
        return {
            "input_ids": torch.tensor([pad(x, self.pad_id) for x in ids]),
            "attention_mask": torch.tensor([pad([1] * len(x), 0) for x in ids]),
            "labels": torch.tensor([pad(x, IGNORE) for x in lab]),
        }
