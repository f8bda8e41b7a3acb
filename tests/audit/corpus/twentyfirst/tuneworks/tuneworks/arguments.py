from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = field(default="allenai/OLMo-2-0425-1B")
    train_file: str = field(default="data/mix.jsonl")
    output_dir: str = field(default="output/mix")
    max_seq_length: int = field(default=2048)
    per_device_train_batch_size: int = field(default=4)
    gradient_accumulation_steps: int = field(default=4)
    learning_rate: float = field(default=2e-5)
    weight_decay: float = field(default=0.0)
    warmup_ratio: float = field(default=0.03)
    num_train_epochs: int = field(default=2)
    logging_steps: int = field(default=10)
    seed: int = field(default=8)
    resume_from_checkpoint: Optional[str] = field(default=None)
