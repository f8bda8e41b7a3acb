"""Tickets -> token ids. Prompt tokens get label -100."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from datasets import load_dataset

SYSTEM = (
    "You are the IT helpdesk assistant. Answer briefly and politely. "
    "If you are not sure, say which team should take the ticket."
)


def to_messages(row: dict) -> list[dict]:
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": row["question"].strip()},
    ]


def encode(row: dict, tokenizer, max_length: int) -> dict:
    messages = to_messages(row)
    prompt = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
    answer = tokenizer(row["answer"].strip() + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[:max_length]
    labels = ([-100] * len(prompt) + answer)[:max_length]
    return {"input_ids": ids, "labels": labels}


def build(path: str, tokenizer, max_length: int, num_proc: int, tag: str):
    ds = load_dataset("json", data_files=path, split="train")
    # fresh every time: somebody once trained on a stale cache for a week
    ds = ds.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_length": max_length},
        num_proc=num_proc,
        remove_columns=ds.column_names,
        load_from_cache_file=False,
        desc=f"tokenize {tag}",
    )
    before = len(ds)
    ds = ds.filter(lambda r: any(t != -100 for t in r["labels"]), num_proc=num_proc)
    print(f"[data] {tag}: {len(ds)} rows kept of {before}")
    return ds


@dataclass
class Collator:
    pad_id: int
    max_length: int

    def __call__(self, rows: list[dict]) -> dict:
        width = self.max_length
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        labels = torch.full((len(rows), width), -100, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[i, :n] = torch.tensor(r["input_ids"])
            labels[i, :n] = torch.tensor(r["labels"])
            mask[i, :n] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}
