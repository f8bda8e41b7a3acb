import torch
import torch.distributed as dist
from datasets import load_dataset


def encode(row, tok, max_len):
    head = tok(f"Question: {row['question']}\nAnswer:", add_special_tokens=False)["input_ids"]
    tail = tok(f" {row['answer']}{tok.eos_token}", add_special_tokens=False)["input_ids"]
    return {
        "input_ids": (head + tail)[:max_len],
        "labels": ([-100] * len(head) + tail)[:max_len],
    }


def load(path, tok, max_len):
    """Rank 0 tokenises and fills the cache, the others read it."""
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    rows = load_dataset("json", data_files=path, split="train")
    rows = rows.map(
        encode, fn_kwargs={"tok": tok, "max_len": max_len}, remove_columns=rows.column_names, num_proc=8
    )
    rows = rows.filter(lambda row: any(label != -100 for label in row["labels"]), num_proc=8)
    if rank == 0:
        dist.barrier()
    return rows


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad_id)
        labels = torch.full((len(rows), width), -100)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[i, :n] = torch.tensor(r["input_ids"])
            labels[i, :n] = torch.tensor(r["labels"])
            mask[i, :n] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
