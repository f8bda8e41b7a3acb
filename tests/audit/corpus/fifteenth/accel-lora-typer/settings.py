from dataclasses import dataclass, field
from typing import List


@dataclass
class Settings:
    model: str = "mistralai/Mistral-7B-v0.3"
    rank: int = 16
    targets: List[str] = field(default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj"])
    max_len: int = 1024
    micro_batch: int = 4
    accum: int = 4
    map_procs: int = 8
    seed: int = 7
