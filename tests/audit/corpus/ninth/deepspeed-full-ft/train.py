import logging
from dataclasses import dataclass, field
from typing import Any, Dict, List

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    attn_implementation: str = field(default="sdpa")


@dataclass
class DataArguments:
    data_path: str = field(metadata={"help": "JSONL with a `messages` list per row"})
    max_length: int = field(default=4096)
    preprocessing_num_workers: int = field(default=16)


@dataclass
class ChatCollator:
    tokenizer: PreTrainedTokenizerBase

    def __call__(self, features: List[Dict[str, Any]]) -> Dict[str, torch.Tensor]:
        batch = self.tokenizer.pad(features, padding="longest", return_tensors="pt")
        batch["labels"] = batch["input_ids"].clone()
        return batch


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if training_args.should_log else logging.WARNING)
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        dtype=torch.bfloat16,
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    def encode(row):
        ids = tokenizer.apply_chat_template(
            row["messages"], tokenize=True, truncation=True, max_length=data_args.max_length
        )
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    raw = load_dataset("json", data_files=data_args.data_path, split="train")
    with training_args.main_process_first(desc="tokenize"):
        train_dataset = raw.map(
            encode, remove_columns=raw.column_names, num_proc=data_args.preprocessing_num_workers
        )
    logger.info("training rows: %d", len(train_dataset))

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        data_collator=ChatCollator(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
