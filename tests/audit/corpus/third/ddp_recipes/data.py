import json
import random

import torch
from torch.utils.data import Dataset

IGNORE = -100


class RecipeDataset(Dataset):
    """Instruction -> recipe pairs; the instruction part carries no loss."""

    def __init__(self, path, tokenizer, max_len):
        self.rows = []
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                item = json.loads(line)
                prompt_ids = tokenizer(f"### Dish:\n{item['dish']}\n\n### Recipe:\n")["input_ids"]
                answer_ids = tokenizer(item["recipe"], add_special_tokens=False)["input_ids"]
                answer_ids = answer_ids + [tokenizer.eos_token_id]
                ids = (prompt_ids + answer_ids)[:max_len]
                labels = ([IGNORE] * len(prompt_ids) + answer_ids)[:max_len]
                if any(label != IGNORE for label in labels[1:]):
                    self.rows.append((ids, labels))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class PadToLongest:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), width), self.pad_id)
        labels = torch.full((len(rows), width), IGNORE)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for n, (row, row_labels) in enumerate(rows):
            ids[n, : len(row)] = torch.tensor(row)
            labels[n, : len(row)] = torch.tensor(row_labels)
            mask[n, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)
