"""The corpus as blocks of seq_len tokens, tokenised on the way.

A block is cut out of ~40 documents that follow each other in the shard. Tokenising everything beforehand was 48 GB of
arrow files and /scratch is full, so each block is made when it is asked for (some 60 ms with the fast tokenizer).
"""
import glob
import json
import os

import torch
from torch.utils.data import Dataset


class PatentBlocks(Dataset):
    def __init__(self, folder: str, tokenizer, seq_len: int, docs_per_block: int = 40):
        self.tok = tokenizer
        self.seq_len = seq_len
        self.n_docs = docs_per_block
        self.index = []  # (file, byte offset of the block's first document)
        for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
            with open(path + ".idx") as fh:
                offsets = json.load(fh)
            self.index += [(path, o) for o in offsets[:: self.n_docs]]

    def __len__(self):
        return len(self.index)

    def _documents(self, path: str, offset: int):
        with open(path, "rb") as fh:
            fh.seek(offset)
            for _ in range(self.n_docs):
                line = fh.readline()
                if not line:
                    break
                yield json.loads(line)["text"]

    def __getitem__(self, i: int):
        ids: list[int] = []
        for text in self._documents(*self.index[i]):
            ids += self.tok(text, add_special_tokens=False)["input_ids"]
            if len(ids) >= self.seq_len:
                break
        ids = ids[: self.seq_len]
        n = len(ids)
        x = torch.tensor(ids + [self.tok.pad_token_id] * (self.seq_len - n))
        y = x.clone()
        y[n:] = -100
        return {"input_ids": x, "labels": y}
