from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = field(default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    dataset_path: str = field(default="data/chats.jsonl")
    output_dir: str = field(default="out")
    max_seq_length: int = field(default=8192, metadata={"help": "Length of a packed row."})
    mask_prompt: bool = field(default=True, metadata={"help": "Compute the loss on assistant turns only."})
    per_device_train_batch_size: int = field(default=1)
    gradient_accumulation_steps: int = field(default=1)
    num_train_epochs: int = field(default=2)
    learning_rate: float = field(default=2e-5)
    warmup_ratio: float = field(default=0.03)
    weight_decay: float = field(default=0.0)
    gradient_checkpointing: bool = field(default=True)
    logging_steps: int = field(default=5)
    seed: int = field(default=42)
    resume_from_checkpoint: Optional[str] = field(default=None)
