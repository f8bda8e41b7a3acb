import logging
from dataclasses import dataclass, field
from itertools import chain

import torch
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

logging.basicConfig(level=logging.INFO)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-3.2-1B")


@dataclass
class DataArguments:
    train_glob: str = field(default="corpus/*.jsonl")
    block_size: int = field(default=2048)
    num_proc: int = field(default=16)


def build(data_args, training_args, tokenizer):
    raw = load_dataset("json", data_files=data_args.train_glob, split="train")

    def tok(batch):
        texts = [t + tokenizer.eos_token for t in batch["text"]]
        return tokenizer(texts, return_attention_mask=False)

    def group(batch):
        ids = list(chain(*batch["input_ids"]))
        n = len(ids) // data_args.block_size * data_args.block_size
        blocks = [ids[i : i + data_args.block_size] for i in range(0, n, data_args.block_size)]
        return {"input_ids": blocks, "labels": [b.copy() for b in blocks]}

    with training_args.main_process_first(desc="tokenise"):
        ds = raw.map(tok, batched=True, num_proc=data_args.num_proc, remove_columns=raw.column_names)
        ds = ds.map(group, batched=True, num_proc=data_args.num_proc)
    return ds


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    ds = build(data_args, training_args, tokenizer)

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=ds,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(training_args.output_dir) if training_args.resume_from_checkpoint else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
