from dataclasses import dataclass, field
from typing import Optional


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "hub id or folder"})
    use_flash_attn: bool = field(default=False, metadata={"help": "run with FlashAttention 2"})
    trust_remote_code: bool = field(default=True, metadata={"help": "allow code from the hub"})
    lora_rank: int = 64
    lora_alpha: int = 16
    lora_dropout: float = 0.05


@dataclass
class TrainArguments:
    train_file: str = field(metadata={"help": "JSONL with a list `messages` in each row"})
    output_dir: str = field(metadata={"help": "where adapter and states go"})
    max_seq_length: int = 4096
    preprocessing_num_workers: int = 8
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    learning_rate: float = 1e-4
    num_train_epochs: int = 2
    warmup_ratio: float = 0.03
    logging_steps: int = 10
    checkpointing_steps: int = 250
    resume_from: Optional[str] = None
    seed: int = 42
