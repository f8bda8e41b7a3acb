import argparse
from dataclasses import dataclass, field, fields
from typing import Optional


@dataclass
class FlatArguments:
    model_name_or_path: str = "Qwen/Qwen2.5-3B-Instruct"
    dataset_path: str = "data/ultra_pairs.jsonl"
    output_dir: str = "output/dpo"
    max_seq_length: int = 1536
    per_device_train_batch_size: int = field(
        default=4, metadata={"help": "pairs per GPU and micro-step"})
    gradient_accumulation_steps: int = 8
    num_train_epochs: int = 3
    learning_rate: float = 5e-7
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    beta: float = 0.1
    mixed_precision: str = field(default="no", metadata={"help": "no, fp16 or bf16"})
    gradient_checkpointing: bool = True
    logging_steps: int = 10
    checkpointing_steps: int = 200
    resume_from: Optional[str] = None
    seed: int = 42


def parse(argv=None) -> FlatArguments:
    ap = argparse.ArgumentParser()
    for f in fields(FlatArguments):
        if f.type is bool:
            ap.add_argument("--" + f.name, type=lambda s: s.lower() in ("1", "true", "yes"), default=f.default,
                            help=f.metadata.get("help"))
        else:
            kind = str if f.type == Optional[str] else f.type
            ap.add_argument("--" + f.name, type=kind, default=f.default, help=f.metadata.get("help"))
    return FlatArguments(**vars(ap.parse_args(argv)))
