from dataclasses import dataclass


@dataclass
class DPOCfg:
    model: str = "meta-llama/Llama-3.2-3B-Instruct"
    data: str = "data/pairs.jsonl"
    out: str = "runs/dpo"
    beta: float = 0.1
    lr: float = 5e-7
    epochs: int = 3
    batch_size: int = 2
    accum: int = 4
    max_len: int = 1024
    seed: int = 7
    log_every: int = 20
