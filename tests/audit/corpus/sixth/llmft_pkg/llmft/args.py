from dataclasses import dataclass, field


@dataclass
class ModelArgs:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-0.5B")
    attn_implementation: str = field(default="sdpa")


@dataclass
class DataArgs:
    train_file: str = field(default="data/train.jsonl")
    valid_file: str = field(default="data/valid.jsonl")
    block_size: int = field(default=8192, metadata={"help": "tokens of one packed row"})
    num_proc: int = field(default=16)
    response_marker: str = field(default="### Response:\n")
