"""Peptides of 40 to 50 residues, masked language modelling."""
import pathlib

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

AA = "ACDEFGHIKLMNPQRSTVWY"
PAD, CLS, EOS, MASK, UNK = range(5)
VOCAB = {a: i + 5 for i, a in enumerate(AA)}
SIZE = 5 + len(AA)
LEN = 52          # 50 + CLS + EOS: the library was cut to 40..50, mean 48.6


def encode(seq):
    ids = [CLS] + [VOCAB.get(a, UNK) for a in seq[: LEN - 2]] + [EOS]
    return ids + [PAD] * (LEN - len(ids))


class Peptides(L.LightningDataModule):
    def __init__(self, folder, batch_size, workers):
        super().__init__()
        self.folder, self.batch_size, self.workers = pathlib.Path(folder), batch_size, workers

    def prepare_data(self):
        """Rank 0 only: encode once, later runs find the file."""
        for split in ("train", "val"):
            done = self.folder / f"{split}.{LEN}.pt"
            if not done.exists():
                seqs = (self.folder / f"{split}.txt").read_text().split()
                torch.save(torch.tensor([encode(s) for s in seqs], dtype=torch.uint8), done)

    def setup(self, stage):
        # mmap: the ranks share the pages
        load = lambda s: TensorDataset(torch.load(self.folder / f"{s}.{LEN}.pt", mmap=True, weights_only=True))
        self.train, self.val = load("train"), load("val")

    def _loader(self, ds, shuffle):
        # fixed width on purpose: 93 % of the positions are residues, collating by length gains nothing
        return DataLoader(ds, self.batch_size, shuffle=shuffle, drop_last=shuffle,
                          num_workers=self.workers, pin_memory=True,
                          persistent_workers=self.workers > 0)

    def train_dataloader(self):
        return self._loader(self.train, True)

    def val_dataloader(self):
        return self._loader(self.val, False)
