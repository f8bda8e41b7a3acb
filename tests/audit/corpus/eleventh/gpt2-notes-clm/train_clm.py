import logging
from dataclasses import dataclass, field
from typing import Optional

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="gpt2")


@dataclass
class DataArguments:
    train_file: str = field(default="data/notes.jsonl")
    block_size: int = field(default=1024)
    preprocessing_num_workers: Optional[int] = field(default=4)


def build_dataset(data_args, tokenizer):
    raw = load_dataset("json", data_files=data_args.train_file, split="train")

    def tokenize(batch):
        out = tokenizer(
            [t + tokenizer.eos_token for t in batch["text"]],
            truncation=True,
            padding="max_length",
            max_length=data_args.block_size,
        )
        out["labels"] = [ids.copy() for ids in out["input_ids"]]
        return out

    return raw.map(
        tokenize,
        batched=True,
        remove_columns=raw.column_names,
        num_proc=data_args.preprocessing_num_workers,
        load_from_cache_file=False,
    )


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)

    with training_args.main_process_first(desc="tokenize"):
        train_dataset = build_dataset(data_args, tokenizer)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    last = get_last_checkpoint(training_args.output_dir)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
