import json

import torch
from torch.utils.data import Dataset


class PrefDataset(Dataset):
    """Everything is tokenized up front; ~60k pairs fit in a few hundred MB."""

    def __init__(self, path, tok, max_prompt, max_len):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                prompt = tok.apply_chat_template(
                    [{"role": "user", "content": r["prompt"]}], add_generation_prompt=True
                )[-max_prompt:]
                ex = {}
                for side in ("chosen", "rejected"):
                    # <|eot_id|> closes the assistant turn in the llama-3 format
                    resp = tok(r[side] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
                    ex[side] = (prompt + resp)[:max_len]
                    ex[side + "_labels"] = ([-100] * len(prompt) + resp)[:max_len]
                self.rows.append(ex)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def make_collate(pad_id):
    def collate(batch):
        seqs = [b["chosen"] for b in batch] + [b["rejected"] for b in batch]
        labs = [b["chosen_labels"] for b in batch] + [b["rejected_labels"] for b in batch]
        n = max(map(len, seqs))
        return {
            "input_ids": torch.tensor([s + [pad_id] * (n - len(s)) for s in seqs]),
            "attention_mask": torch.tensor([[1] * len(s) + [0] * (n - len(s)) for s in seqs]),
            "labels": torch.tensor([x + [-100] * (n - len(x)) for x in labs]),
        }

    return collate
