import pandas as pd
import torch
from torch.utils.data import Dataset


class Instructions(Dataset):
    def __init__(self, path, tokenizer, max_length):
        frame = pd.read_parquet(path)
        self.prompts = frame["prompt"].tolist()
        self.answers = frame["answer"].tolist()
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, i):
        prompt = self.tokenizer(self.prompts[i] + "\n")["input_ids"]
        answer = self.tokenizer(self.answers[i], add_special_tokens=False)["input_ids"]
        answer = answer + [self.tokenizer.eos_token_id]
        prompt = prompt[: self.max_length // 2]
        ids = (prompt + answer)[: self.max_length]
        labels = ([-100] * len(prompt) + answer)[: self.max_length]
        return ids, labels


class Pad:
    def __init__(self, pad_id, width):
        self.pad_id = pad_id
        self.width = width

    def __call__(self, rows):
        ids = torch.full((len(rows), self.width), self.pad_id)
        labels = torch.full((len(rows), self.width), -100)
        mask = torch.zeros((len(rows), self.width), dtype=torch.long)
        for i, (x, y) in enumerate(rows):
            ids[i, : len(x)] = torch.tensor(x)
            labels[i, : len(y)] = torch.tensor(y)
            mask[i, : len(x)] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}
