from dataclasses import dataclass, field
from typing import Optional


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Hub id or local folder of the base model."})
    use_flash_attn: bool = field(default=True, metadata={"help": "Use FlashAttention-2."})
    model_revision: str = field(default="main", metadata={"help": "Revision of the model to load."})


@dataclass
class DataArguments:
    train_file: str = field(metadata={"help": "JSONL with a `messages` list per line."})
    max_seq_length: int = field(default=4096, metadata={"help": "Longer conversations are cut."})
    preprocessing_num_workers: int = field(default=16)
    max_train_samples: Optional[int] = field(default=None)
