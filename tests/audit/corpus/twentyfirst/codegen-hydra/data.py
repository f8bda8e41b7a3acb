import torch
from datasets import load_dataset


def build_dataset(path, tok, max_len, num_proc):
    raw = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        rows = [tok(t, add_special_tokens=False, truncation=True, max_length=max_len - 1)["input_ids"] for t in batch["code"]]
        return {"input_ids": [r + [tok.eos_token_id] for r in rows]}

    return raw.map(encode, batched=True, num_proc=num_proc, remove_columns=raw.column_names)


class PadCollator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        longest = max(len(r["input_ids"]) for r in rows)
        ids, mask, labels = [], [], []
        for r in rows:
            x = r["input_ids"]
            gap = longest - len(x)
            ids.append(x + [self.pad_id] * gap)
            mask.append([1] * len(x) + [0] * gap)
            labels.append(x + [-100] * gap)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }
