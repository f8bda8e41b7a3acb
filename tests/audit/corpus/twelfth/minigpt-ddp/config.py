import os
from dataclasses import dataclass

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


@dataclass
class Config:
    data_path: str = "data/stories.txt"
    out_dir: str = "out"
    vocab_size: int = 50304
    dim: int = 768
    depth: int = 12
    heads: int = 12
    max_len: int = 1024
    global_batch: int = 128
    micro_batch: int = 8
    lr: float = 6e-4
    warmup: int = 200
    epochs: int = 4
    seed: int = 1337

    @property
    def grad_accum(self):
        return max(1, self.global_batch // (self.micro_batch * WORLD_SIZE))
