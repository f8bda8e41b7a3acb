import os
from dataclasses import dataclass, field

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from data_module import IGNORE, ChatDataset


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "hub name or folder"})
    attn: str = field(default="sdpa")


@dataclass
class DataArguments:
    train_file: str = field(metadata={"help": "jsonl with a messages column"})
    max_length: int = field(default=1024)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        attn_implementation=model_args.attn,
        torch_dtype=torch.bfloat16,
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=ChatDataset(data_args.train_file, tokenizer, data_args.max_length),
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORE, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )

    last = None
    if os.path.isdir(training_args.output_dir):
        last = get_last_checkpoint(training_args.output_dir)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
