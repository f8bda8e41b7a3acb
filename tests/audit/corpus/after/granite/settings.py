from dataclasses import dataclass, field


@dataclass
class ModelSettings:
    name: str = field(default="meta-llama/Llama-3.1-8B")
    attention: str = field(default="flash_attention_2")
    device_map: str = field(default="auto")


@dataclass
class DataSettings:
    path: str = field(default="data/sft.jsonl")
    max_tokens: int = field(default=2048)
    workers: int = field(default=4)


@dataclass
class RunSettings:
    out: str = field(default="runs/granite")
    epochs: int = field(default=3)
    batch: int = field(default=4)
    target_batch: int = field(default=128)
    lr: float = field(default=2e-4)
    log_every: int = field(default=10)
    seed: int = field(default=3)
