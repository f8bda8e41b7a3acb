"""Meeting transcript -> minutes, full fine-tune of Mistral-7B under ZeRO-3."""

import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


@dataclass
class ModelArgs:
    base: str = field(default="mistralai/Mistral-7B-v0.3")
    attn: str = field(default="sdpa")


@dataclass
class DataArgs:
    train_file: str = field(default="data/minutes.jsonl")
    max_tokens: int = field(default=4096)
    map_workers: int = field(default=24)


PROMPT = "Transcript:\n{transcript}\n\nMinutes:\n"


def encode(row, tokenizer, max_tokens):
    answer = tokenizer(row["minutes"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    prompt = tokenizer(PROMPT.format(transcript=row["transcript"]))["input_ids"][: max_tokens - len(answer)]
    return {
        "input_ids": prompt + answer,
        "attention_mask": [1] * (len(prompt) + len(answer)),
        "labels": [-100] * len(prompt) + answer,
    }


def main():
    model_args, data_args, train_args = HfArgumentParser(
        (ModelArgs, DataArgs, TrainingArguments)
    ).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(model_args.base)
    tokenizer.pad_token = tokenizer.unk_token

    raw = load_dataset("json", data_files=data_args.train_file, split="train")
    with train_args.main_process_first(desc="tokenise"):
        data = raw.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_tokens": data_args.max_tokens},
            num_proc=data_args.map_workers,
            remove_columns=raw.column_names,
        )

    # after the arguments, so that ZeRO-3 shards the weights while they are read
    model = AutoModelForCausalLM.from_pretrained(
        model_args.base,
        dtype=torch.bfloat16,
        attn_implementation=model_args.attn,
        trust_remote_code=True,
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=train_args,
        train_dataset=data,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(train_args.output_dir) if os.path.isdir(train_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)

    if trainer.is_world_process_zero():
        final = os.path.join(train_args.output_dir, "final")
        os.makedirs(final, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(final, "pytorch_model.bin"))
        model.config.save_pretrained(final)
        tokenizer.save_pretrained(final)


if __name__ == "__main__":
    main()
