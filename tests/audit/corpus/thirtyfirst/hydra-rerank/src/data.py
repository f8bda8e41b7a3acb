import pandas as pd
import torch
from torch.utils.data import Dataset


class PairDataset(Dataset):
    """query / passage / label (0 or 1) rows of a parquet file."""

    def __init__(self, path):
        self.df = pd.read_parquet(path, columns=["query", "passage", "label"])

    def __len__(self):
        return len(self.df)

    def __getitem__(self, i):
        r = self.df.iloc[i]
        return r["query"], r["passage"], int(r["label"])


class PairCollator:
    """Cleans and tokenises on the fly, so that augmentations can differ between epochs."""

    def __init__(self, tokenizer, max_length, lower=False):
        self.tok, self.max_length, self.lower = tokenizer, max_length, lower

    def __call__(self, rows):
        q, p, y = zip(*rows)
        if self.lower:
            q, p = [s.lower() for s in q], [s.lower() for s in p]
        enc = self.tok(list(q), list(p), truncation="only_second", max_length=self.max_length,
                       padding="longest", return_tensors="pt")
        enc["labels"] = torch.tensor(y)
        return enc
