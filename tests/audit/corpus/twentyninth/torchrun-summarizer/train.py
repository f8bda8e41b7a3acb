import os
from dataclasses import dataclass

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
class DataArguments:
    model_name: str
    train_file: str
    max_length: int = 4096


def main():
    data_args, args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(data_args.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    def encode(row):
        prompt = tokenizer(f"Article:\n{row['article']}\n\nSummary:\n").input_ids
        answer = tokenizer(row["summary"], add_special_tokens=False).input_ids
        answer = answer + [tokenizer.eos_token_id]
        prompt = prompt[: data_args.max_length - len(answer)]
        ids = prompt + answer
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "labels": [-100] * len(prompt) + answer,
            "length": len(ids),
        }

    raw = load_dataset("json", data_files=data_args.train_file, split="train")
    with args.main_process_first(desc="tokenise"):
        train = raw.map(encode, remove_columns=raw.column_names, num_proc=8)

    # float32 master weights; FSDP computes in bf16
    model = AutoModelForCausalLM.from_pretrained(
        data_args.model_name,
        torch_dtype=torch.float32,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
