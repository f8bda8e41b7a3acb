from dataclasses import dataclass, field

from transformers import TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    attn_implementation: str = field(default="eager", metadata={"help": "eager, sdpa or flash_attention_2"})
    lora_rank: int = field(default=32)


@dataclass
class DataArguments:
    train_file: str = field(default="instructions.jsonl")
    max_seq_length: int = field(default=2048)
    num_proc: int = field(default=8)


@dataclass
class FinetuneArguments(TrainingArguments):
    output_dir: str = field(default="out/instruct-mini")
    logging_steps: float = field(default=20)
    optim: str = field(default="adamw_torch_fused")
    report_to: str = field(default="none")
