import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence


def encode(row, tokenizer, max_length):
    prompt = tokenizer(f"### Question\n{row['question']}\n\n### Answer\n", add_special_tokens=False)["input_ids"]
    answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {
        "input_ids": (prompt + answer)[:max_length],
        "labels": ([-100] * len(prompt) + answer)[:max_length],
    }


def build(path, tokenizer, max_length):
    """Rank 0 tokenises and fills the datasets cache; the other ranks read it."""
    if dist.get_rank() != 0:
        dist.barrier()
    rows = load_dataset("json", data_files=path, split="train")
    rows = rows.map(
        encode, fn_kwargs={"tokenizer": tokenizer, "max_length": max_length}, remove_columns=rows.column_names
    )
    if dist.get_rank() == 0:
        dist.barrier()
    return rows


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        ids = [torch.tensor(r["input_ids"]) for r in rows]
        labels = [torch.tensor(r["labels"]) for r in rows]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            "attention_mask": pad_sequence([torch.ones_like(x) for x in ids], batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }
