from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    """Every option of a fine-tuning run in one flat dataclass."""

    model_name_or_path: str = field(default="meta-llama/Llama-3.2-1B")
    train_file: str = field(default="data/mix.jsonl")
    output_dir: str = field(default="output")
    use_flash_attn: bool = field(
        default=True,
        metadata={"help": "Load the model with FlashAttention-2."},
    )
    max_seq_length: int = field(default=1024)
    preprocessing_num_workers: int = field(default=8)
    per_device_train_batch_size: int = field(default=4)
    gradient_accumulation_steps: int = field(default=4)
    learning_rate: float = field(default=1e-5)
    warmup_ratio: float = field(default=0.03)
    weight_decay: float = field(default=0.0)
    num_train_epochs: int = field(default=2)
    gradient_checkpointing: bool = field(default=False)
    logging_steps: int = field(default=20)
    resume_from: Optional[str] = field(default=None)
    seed: int = field(default=8)
