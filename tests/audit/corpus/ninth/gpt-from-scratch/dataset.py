import tiktoken
import torch
from torch.utils.data import Dataset


class TextChunkDataset(Dataset):
    """Fixed-size windows over a UTF-8 text file."""

    def __init__(self, path, block_size, chars_per_window=6144):
        self.path = path
        self.block_size = block_size
        self.chars = chars_per_window
        self.enc = tiktoken.get_encoding("gpt2")
        with open(path, "rb") as f:
            f.seek(0, 2)
            self.n_bytes = f.tell()

    def __len__(self):
        return self.n_bytes // self.chars

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(i * self.chars)
            text = f.read(self.chars).decode("utf-8", errors="ignore")
        ids = self.enc.encode_ordinary(text)[: self.block_size + 1]
        ids = ids + [self.enc.eot_token] * (self.block_size + 1 - len(ids))
        ids = torch.tensor(ids, dtype=torch.long)
        return ids[:-1], ids[1:]
