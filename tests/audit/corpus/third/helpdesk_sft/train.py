"""SFT of the help-desk model. Everything that changes between runs is in recipe.yaml."""

import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class DataArgs:
    train_file: str = field(metadata={"help": "JSON lines with a `messages` column"})
    drop_shorter_than: int = field(default=2, metadata={"help": "drop chats with fewer turns"})


def keep(example, minimum):
    turns = [m for m in example["messages"] if m["role"] != "system"]
    return len(turns) >= minimum and turns[-1]["role"] == "assistant"


def load_chats(data_args):
    ds = load_dataset("json", data_files=data_args.train_file, split="train")
    before = len(ds)
    ds = ds.filter(keep, fn_kwargs={"minimum": data_args.drop_shorter_than}, num_proc=8)
    print(f"kept {len(ds)} of {before} chats")
    return ds.select_columns(["messages"])


def build_model(model_args):
    # One place to load, so that evaluate.py and export.py can share it.
    return AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.model_revision,
        attn_implementation=model_args.attn_implementation,
        dtype=torch.bfloat16,
    )


def main():
    parser = TrlParser((DataArgs, SFTConfig, ModelConfig))
    data_args, train_args, model_args = parser.parse_args_and_config()

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = build_model(model_args)

    trainer = SFTTrainer(
        model=model,
        args=train_args,
        train_dataset=load_chats(data_args),
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )

    last = get_last_checkpoint(train_args.output_dir) if os.path.isdir(train_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(train_args.output_dir)


if __name__ == "__main__":
    main()
