import json

from torch.utils.data import Dataset

MAX_LEN = 512


def load_split(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


class TicketDataset(Dataset):
    def __init__(self, rows, names, tokenizer):
        self.rows = rows
        self.ids = {n: i for i, n in enumerate(names)}
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        text = row["subject"] + "\n" + row["body"]
        enc = self.tokenizer(
            text,
            truncation=True,
            padding="max_length",
            max_length=MAX_LEN,
        )
        enc["labels"] = self.ids[row["queue"]]
        return dict(enc)
