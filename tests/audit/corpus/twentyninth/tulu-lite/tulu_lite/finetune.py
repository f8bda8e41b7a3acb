import os

import torch
from datasets import Dataset, load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from .args import DataArguments, ModelArguments
from .packing import IGNORE, PackedCollator, pack


def encode(row, tokenizer, max_len):
    ids, labels = [], []
    for turn in row["messages"]:
        head = tokenizer(f"<|{turn['role']}|>\n", add_special_tokens=False).input_ids
        body = tokenizer(turn["content"], add_special_tokens=False).input_ids
        if turn["role"] == "assistant":
            body = body + [tokenizer.eos_token_id]
            labels += [IGNORE] * len(head) + body
        else:
            body = body + tokenizer("\n", add_special_tokens=False).input_ids
            labels += [IGNORE] * (len(head) + len(body))
        ids += head + body
    return {"input_ids": ids[:max_len], "labels": labels[:max_len]}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    margs, dargs, targs = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(
        margs.tokenizer_name or margs.model_name_or_path,
        trust_remote_code=margs.trust_remote_code,
    )
    model = AutoModelForCausalLM.from_pretrained(
        margs.model_name_or_path,
        attn_implementation=margs.attn_implementation,
        torch_dtype=torch.float32,
        trust_remote_code=margs.trust_remote_code,
    )
    model.config.use_cache = False

    raw = load_dataset("json", data_files=dargs.train_file, split="train")
    with targs.main_process_first(desc="tokenise"):
        rows = raw.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_len": dargs.max_seq_length},
            remove_columns=raw.column_names,
            num_proc=dargs.preprocessing_num_workers,
        )
    train = Dataset.from_list(pack(rows.shuffle(seed=targs.seed), dargs.max_seq_length))

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=train,
        data_collator=PackedCollator(tokenizer.pad_token_id, dargs.max_seq_length),
    )
    last = get_last_checkpoint(targs.output_dir) if os.path.isdir(targs.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    tokenizer.save_pretrained(targs.output_dir)


if __name__ == "__main__":
    main()
