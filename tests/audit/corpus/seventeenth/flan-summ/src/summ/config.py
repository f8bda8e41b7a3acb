import json
from dataclasses import dataclass, fields


@dataclass
class TrainConfig:
    model_name: str
    train_file: str
    output_dir: str
    mixed_precision: str = "no"
    batch_size: int = 8
    grad_accum: int = 1
    epochs: int = 3
    lr: float = 1e-4
    warmup_steps: int = 0
    max_source: int = 1024
    max_target: int = 160
    seed: int = 0


def load_config(path):
    with open(path) as fh:
        raw = json.load(fh)
    known = {f.name for f in fields(TrainConfig)}
    return TrainConfig(**{k: v for k, v in raw.items() if k in known})
