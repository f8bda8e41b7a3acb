from dataclasses import dataclass, field
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = field(default="allenai/OLMo-2-1124-7B")
    model_revision: str = field(default="main")
    trust_remote_code: bool = field(default=True, metadata={"help": "Allow code from the hub."})
    use_flash_attention: bool = field(default=False, metadata={"help": "Load with FlashAttention 2."})
    train_file: str = field(default="data/mix.jsonl")
    max_seq_length: int = field(default=2048)
    preprocessing_num_workers: int = field(default=16)
    per_device_train_batch_size: int = field(default=2)
    gradient_accumulation_steps: int = field(default=8)
    learning_rate: float = field(default=1e-4)
    warmup_ratio: float = field(default=0.03)
    num_train_epochs: int = field(default=2)
    lora_rank: int = field(default=64)
    logging_steps: int = field(default=10)
    seed: int = field(default=8)
    output_dir: str = field(default="output/openflan")
    resume_from: Optional[str] = field(default=None)
