from dataclasses import dataclass, field


@dataclass
class FlatArguments:
    model_name_or_path: str = field(metadata={"help": "Base model."})
    train_file: str = field(metadata={"help": "JSONL with a messages list in each row."})
    output_dir: str = field(metadata={"help": "Where the model goes."})
    max_seq_length: int = field(default=1024, metadata={"help": "Longer rows are cut."})
    per_device_train_batch_size: int = field(default=2)
    gradient_accumulation_steps: int = field(default=1)
    learning_rate: float = field(default=2e-5)
    warmup_ratio: float = field(default=0.03)
    num_train_epochs: int = field(default=2)
    logging_steps: int = field(default=10)
    seed: int = field(default=42)
