import torch
from torch.utils.data import Dataset

PAD, BOS, EOS = 0, 1, 2


class Vocabulary:
    def __init__(self, lines):
        self.chars = sorted({c for line in lines for c in line})
        self.index = {c: i + 3 for i, c in enumerate(self.chars)}

    def __len__(self):
        return len(self.chars) + 3

    def encode(self, smiles):
        return [BOS] + [self.index[c] for c in smiles]

    def decode(self, ids):
        return "".join(self.chars[i - 3] for i in ids if i > 2)


class Molecules(Dataset):
    def __init__(self, lines, vocabulary, context=256):
        self.rows = [torch.tensor(vocabulary.encode(line)[:context]) for line in lines]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = max(len(r) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    targets = torch.full((len(rows), width), -100)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        targets[i, : len(row)] = row
    return ids, targets
