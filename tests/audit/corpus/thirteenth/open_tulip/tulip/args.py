from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = field(metadata={"help": "Model to start from."})
    train_file: str = field(metadata={"help": "JSONL with a `messages` column."})
    output_dir: str = "outputs"
    max_seq_length: int = 2048
    preprocessing_num_workers: int = 16
    per_device_train_batch_size: int = 2
    gradient_accumulation_steps: int = 8
    learning_rate: float = 1e-4
    weight_decay: float = 0.1
    warmup_ratio: float = 0.05
    num_train_epochs: int = 2
    lora_rank: int = 64
    lora_alpha: float = 16
    lora_dropout: float = 0.1
    logging_steps: int = 10
    resume_from_checkpoint: Optional[str] = field(default=None, metadata={"help": "An epoch_N folder."})
    seed: int = 42
