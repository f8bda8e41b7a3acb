import csv
import random

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def read(path):
    with open(path, newline="") as f:
        return [(q, pid, title) for q, pid, title in csv.reader(f, delimiter="\t")]


class Batches(IterableDataset):
    """Endless batches without repeated products; every worker goes through its own share of the pairs."""

    def __init__(self, path, size, seed):
        self.pairs, self.size, self.seed = read(path), size, seed

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        mine = self.pairs[wid::n]
        rng = random.Random(self.seed * 1000 + wid)
        while True:
            rng.shuffle(mine)
            batch, used = [], set()
            for q, pid, title in mine:
                if pid in used:
                    continue
                used.add(pid)
                batch.append((q, title))
                if len(batch) == self.size:
                    yield batch
                    batch, used = [], set()


def encoder(tok, max_len):
    def encode(batch):
        kw = dict(truncation=True, max_length=max_len, padding="longest", return_tensors="pt")
        return tok([f"query: {q}" for q, _ in batch], **kw), tok([f"passage: {t}" for _, t in batch], **kw)

    return encode


def train_loader(cfg, tok):
    data = Batches(cfg.train.pairs, cfg.train.batch_size, cfg.seed)
    return DataLoader(
        data, batch_size=None, collate_fn=encoder(tok, cfg.train.max_len), num_workers=cfg.train.workers,
        pin_memory=True, persistent_workers=True, prefetch_factor=4,
    )
