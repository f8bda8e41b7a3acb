from dataclasses import dataclass, fields
from typing import Optional

import yaml


@dataclass
class TrainArgs:
    model_name: str = "Qwen/Qwen2.5-1.5B"
    train_file: str = "data/train.jsonl"
    output_dir: str = "outputs/birch"
    max_length: int = 2048
    per_device_batch_size: int = 4
    total_batch_size: int = 128
    learning_rate: float = 1e-5
    warmup_ratio: float = 0.03
    num_epochs: int = 2
    mixed_precision: str = "bf16"
    log_every: int = 10
    seed: int = 17
    resume_from: Optional[str] = None


def load_args(path: str) -> TrainArgs:
    with open(path) as f:
        raw = yaml.safe_load(f)
    known = {f.name for f in fields(TrainArgs)}
    extra = set(raw) - known
    if extra:
        raise ValueError(f"unknown keys in {path}: {sorted(extra)}")
    return TrainArgs(**raw)
