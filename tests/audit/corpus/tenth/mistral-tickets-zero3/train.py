from dataclasses import dataclass, field

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from data_utils import build_datasets


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="mistralai/Mistral-7B-v0.3")
    attn_implementation: str = field(default="flash_attention_2")


@dataclass
class DataArguments:
    data_path: str = field(default="data/tickets.jsonl")
    max_length: int = field(default=2048)
    num_proc: int = field(default=8)


def train():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        dtype=torch.bfloat16,
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    with training_args.main_process_first(desc="tokenize"):
        train_dataset, eval_dataset = build_datasets(
            tokenizer, data_args.data_path, data_args.max_length, num_proc=data_args.num_proc
        )

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    train()
