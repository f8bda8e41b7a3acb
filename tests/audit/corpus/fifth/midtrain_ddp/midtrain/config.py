from dataclasses import dataclass, field


@dataclass
class Config:
    model: str = "meta-llama/Llama-3.2-1B"
    tokens: str = "/scratch/midtrain/tokens.bin"     # uint32, documents end with eos
    out: str = "/scratch/midtrain/runs/a"
    row_len: int = 16384
    rows_per_rank: int = 1
    tokens_per_update: int = 1 << 20
    updates: int = 4000
    warmup: int = 200
    lr: float = 2e-5
    seed: int = 7
    log_every: int = 20
    save_every: int = 250
    betas: tuple = field(default=(0.9, 0.95))
