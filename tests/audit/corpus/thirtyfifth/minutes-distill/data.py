import json

import torch
from torch.utils.data import Dataset


class Meetings(Dataset):
    def __init__(self, path, tokenizer, max_length=2048):
        self.rows = []
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                row = json.loads(line)
                tail = tokenizer("\n\nMinutes:\n")["input_ids"]
                answer = tokenizer(row["minutes"])["input_ids"] + [tokenizer.eos_token_id]
                head = tokenizer(f"Transcript:\n{row['transcript'].strip()}")["input_ids"]
                prompt = head[: max(0, max_length - len(answer) - len(tail))] + tail
                self.rows.append((prompt + answer, [-100] * len(prompt) + answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Collator:
    def __init__(self, pad_token_id):
        self.pad_token_id = pad_token_id

    def __call__(self, rows):
        width = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([i + [self.pad_token_id] * (width - len(i)) for i, _ in rows])
        labels = torch.tensor([l + [-100] * (width - len(l)) for _, l in rows])
        mask = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
