from dataclasses import dataclass


@dataclass
class Config:
    # model
    vocab: int = 50304
    dim: int = 1536
    layers: int = 24
    heads: int = 12
    ffn: int = 4096
    max_len: int = 2048
    checkpoint_blocks: bool = True
    init_from: str = "weights/base-700m.pt"
    # data: int64 ids and labels, [rows, max_len]; a row is a full-length chunk of one transcript
    data: str = "data/sft_tokens.npz"
    # run
    out: str = "runs/sft-700m"
    global_batch: int = 256
    micro_batch: int = 8
    epochs: int = 3
    lr: float = 3e-5
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    log_every: int = 20
    seed: int = 1337
