from dataclasses import dataclass


@dataclass
class ModelCfg:
    vocab: int = 50304
    n_layer: int = 24
    n_head: int = 16
    d_model: int = 1024
    block: int = 8192


@dataclass
class TrainCfg:
    micro_bs: int = 4
    accum: int = 4
    lr: float = 3e-4
    wd: float = 0.1
    warmup: int = 500
    steps: int = 20000
    clip: float = 1.0
    seed: int = 1337
    log_every: int = 50
    save_every: int = 1000
