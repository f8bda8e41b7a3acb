import argparse
import os

import numpy as np
import torch
from torch.utils.data import Dataset

from .config import ModelCfg


class Rows(Dataset):
    """Memory-mapped rows: token ids, position inside the document, document number."""

    def __init__(self, root):
        self.ids = np.load(os.path.join(root, "ids.npy"), mmap_mode="r")
        self.pos = np.load(os.path.join(root, "pos.npy"), mmap_mode="r")
        self.doc = np.load(os.path.join(root, "doc.npy"), mmap_mode="r")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids, pos, doc = (torch.from_numpy(a[i].astype(np.int64)) for a in (self.ids, self.pos, self.doc))
        labels = torch.full_like(ids, -100)
        same = doc[1:] == doc[:-1]
        labels[:-1][same] = ids[1:][same]
        return {"ids": ids, "pos": pos, "doc_ids": doc, "labels": labels}


def pack(docs, block):
    ids, pos, doc = [], [], []
    row_i, row_p, row_d, n = [], [], [], 0
    for d in docs:
        for s in range(0, len(d), block):
            piece = d[s : s + block].tolist()
            while piece:
                take = piece[: block - len(row_i)]
                piece = piece[len(take) :]
                row_i += take
                row_p += range(len(take))
                row_d += [n] * len(take)
                n += 1
                if len(row_i) == block:
                    ids.append(row_i), pos.append(row_p), doc.append(row_d)
                    row_i, row_p, row_d, n = [], [], [], 0
    return np.array(ids, np.uint16), np.array(pos, np.uint16), np.array(doc, np.uint16)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--src", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    z = np.load(a.src)
    docs = np.split(z["tokens"], z["offsets"])
    for name, arr in zip(("ids", "pos", "doc"), pack(docs, ModelCfg.block)):
        np.save(os.path.join(a.out, f"{name}.npy"), arr)
