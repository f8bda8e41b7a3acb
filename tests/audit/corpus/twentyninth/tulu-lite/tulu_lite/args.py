from dataclasses import dataclass, field
from typing import Optional


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="allenai/OLMo-2-0425-1B")
    tokenizer_name: Optional[str] = field(default=None)
    attn_implementation: str = field(default="sdpa")
    trust_remote_code: bool = field(default=True)


@dataclass
class DataArguments:
    train_file: str = field(default="data/chats.jsonl")
    max_seq_length: int = field(default=4096)
    preprocessing_num_workers: int = field(default=8)
