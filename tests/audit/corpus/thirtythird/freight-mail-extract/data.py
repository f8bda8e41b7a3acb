import json

import torch
from torch.utils.data import Dataset

ASK = "Extract the load as JSON.\n\nMail:\n{mail}\n\nJSON:\n"


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


class Mails(Dataset):
    """Tokenised once, kept as lists of ids; the longest mails are left out."""

    def __init__(self, path, tokenizer, max_length):
        self.items = []
        skipped = 0
        for row in read(path):
            prompt = tokenizer(ASK.format(mail=row["mail"]))["input_ids"]
            answer = tokenizer(json.dumps(row["load"], ensure_ascii=False))["input_ids"] + [tokenizer.eos_token_id]
            if len(prompt) + len(answer) > max_length:
                skipped += 1
                continue
            self.items.append((prompt, answer))
        print(f"{path}: {len(self.items)} mails, {skipped} too long")

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, items):
        width = max(len(p) + len(a) for p, a in items)
        ids, mask, labels = [], [], []
        for prompt, answer in items:
            fill = width - len(prompt) - len(answer)
            ids.append(prompt + answer + [self.pad_id] * fill)
            mask.append([1] * (width - fill) + [0] * fill)
            labels.append([-100] * len(prompt) + answer + [self.pad_id] * fill)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }
