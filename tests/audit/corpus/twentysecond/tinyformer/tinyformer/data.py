import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader(cfg):
    # dict of int64 tensors (rows, ctx): ids, doc_ids, pos, labels; written by our packing job
    packed = torch.load(cfg.data.path, weights_only=True)
    ds = TensorDataset(packed["ids"], packed["doc_ids"], packed["pos"], packed["labels"])
    return DataLoader(
        ds,
        batch_size=cfg.train.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=16,
        pin_memory=True,
        persistent_workers=True,
    )
