import os
from dataclasses import dataclass, fields

import torch
import yaml


@dataclass
class Settings:
    model: str
    pairs: str
    out: str
    beta: float = 0.1
    lr: float = 5e-7
    epochs: int = 3
    global_batch: int = 64
    micro_batch: int = 2
    max_length: int = 2048
    max_prompt_length: int = 1536
    seed: int = 11

    @classmethod
    def load(cls, path):
        with open(path) as fh:
            raw = yaml.safe_load(fh)
        known = {f.name for f in fields(cls)}
        extra = set(raw) - known
        if extra:
            raise SystemExit(f"{path}: unknown settings {sorted(extra)}")
        return cls(**raw)

    @property
    def accumulation(self):
        world = int(os.environ.get("WORLD_SIZE", "1"))
        gpus = max(1, torch.cuda.device_count())
        return max(1, self.global_batch // (self.micro_batch * gpus * world))
