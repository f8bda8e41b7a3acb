import json

from torch.utils.data import Dataset


class StatuteDataset(Dataset):
    def __init__(self, path):
        with open(path, encoding="utf-8") as fh:
            self.rows = [json.loads(line)["text"] for line in fh if line.strip()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        return self.rows[idx]


def make_collate(tok, max_len):
    def collate(texts):
        enc = tok(
            [t + tok.eos_token for t in texts],
            padding="max_length",
            truncation=True,
            max_length=max_len,
            return_tensors="pt",
        )
        enc["labels"] = enc["input_ids"].clone()
        return dict(enc)

    return collate
