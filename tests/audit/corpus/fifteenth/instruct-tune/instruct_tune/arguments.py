from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = field(metadata={"help": "Base model."})
    train_file: str = field(metadata={"help": "JSONL with a messages field."})
    output_dir: str = field(default="output")
    use_flash_attn: bool = field(default=False, metadata={"help": "Use flash attention 2."})
    trust_remote_code: bool = field(default=True, metadata={"help": "Allow code from the hub."})
    max_seq_length: int = field(default=2048)
    per_device_train_batch_size: int = field(default=1)
    gradient_accumulation_steps: int = field(default=1)
    learning_rate: float = field(default=1e-5)
    warmup_ratio: float = field(default=0.03)
    num_train_epochs: int = field(default=2)
    logging_steps: int = field(default=20)
    preprocessing_num_workers: int = field(default=8)
    checkpointing_steps: int = field(default=500)
    resume_from_checkpoint: Optional[str] = field(default=None, metadata={"help": "Folder of a saved state."})
    seed: int = field(default=42)
