from dataclasses import dataclass, field


@dataclass
class ModelArgs:
    model_name: str = field(default="Qwen/Qwen2.5-14B-Instruct")
    lora_r: int = field(default=32)
    trust_remote_code: bool = field(default=False)


@dataclass
class DataArgs:
    train_file: str = field(default="data/legal.jsonl")
    max_len: int = field(default=3072)
    num_proc: int = field(default=8)
