import torch
from datasets import load_dataset
from torch.utils.data import Dataset


class QADataset(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.rows = load_dataset("json", data_files=path, split="train")
        self.tok = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tok(f"Question: {row['question']}\nAnswer:", add_special_tokens=False)["input_ids"]
        answer = self.tok(" " + row["answer"], add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]

        ids = (prompt + answer)[: self.max_length]
        labels = ([-100] * len(prompt) + answer)[: self.max_length]
        pad = self.max_length - len(ids)
        return {
            "input_ids": torch.tensor(ids + [self.tok.pad_token_id] * pad),
            "attention_mask": torch.tensor([1] * len(ids) + [0] * pad),
            "labels": torch.tensor(labels + [-100] * pad),
        }
