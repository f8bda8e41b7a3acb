import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset


class StoryDataset(Dataset):
    """Rows are tokenised once beforehand and stored as lists of ids that end with EOS."""

    def __init__(self, path, ctx):
        with open(path) as f:
            self.rows = [torch.tensor(json.loads(line)["ids"][:ctx]) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    ids = pad_sequence(batch, batch_first=True, padding_value=0)
    labels = pad_sequence(batch, batch_first=True, padding_value=-100)
    return ids, labels
