import logging
import os
import sys
from functools import partial

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from .args import DataArgs, ModelArgs
from .packing import PackedCollator, pack
from .prompting import encode

logging.basicConfig(level=logging.INFO)


def main():
    parser = HfArgumentParser((ModelArgs, DataArgs, TrainingArguments))
    model_args, data_args, args = parser.parse_yaml_file(os.path.abspath(sys.argv[1]))
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.float32,  # master weights, autocast does the rest
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    marker = tok(data_args.response_marker, add_special_tokens=False)["input_ids"]
    ds = load_dataset("json", data_files={"train": data_args.train_file, "valid": data_args.valid_file})
    with args.main_process_first(desc="tokenize and pack"):
        ds = ds.map(
            partial(encode, tokenizer=tok, marker_ids=marker),
            remove_columns=ds["train"].column_names,
            num_proc=data_args.num_proc,
        )
        ds = ds.map(partial(pack, block_size=data_args.block_size), batched=True, num_proc=data_args.num_proc)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        data_collator=PackedCollator(tok.pad_token_id),
        processing_class=tok,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
