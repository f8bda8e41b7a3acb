# Copyright 2023 The HuggingFace Team. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
"""
DPO with LoRA, recipe from YAML:

accelerate launch --num_processes 4 examples/dpo_lora.py recipes/llama8b_v1.yaml
"""

import os
import sys
from dataclasses import dataclass, field

import torch
from datasets import load_from_disk
from peft import get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, get_peft_config


@dataclass
class DataArguments:
    dataset_path: str = field(metadata={"help": "folder of a dataset saved with save_to_disk, splits train and test"})
    train_split: str = field(default="train")
    test_split: str = field(default="test")


def load(model_config: ModelConfig):
    return AutoModelForCausalLM.from_pretrained(
        model_config.model_name_or_path,
        revision=model_config.model_revision,
        trust_remote_code=model_config.trust_remote_code,
        attn_implementation=model_config.attn_implementation,
        torch_dtype=getattr(torch, model_config.torch_dtype),
        use_cache=False,
    )


def count_params(model) -> str:
    train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    return f"{train / 1e6:.1f}M of {total / 1e6:.1f}M"


def main():
    parser = HfArgumentParser((DataArguments, DPOConfig, ModelConfig))
    data_args, training_args, model_config = parser.parse_yaml_file(sys.argv[1])

    ################
    # Model & Tokenizer
    ################
    model = load(model_config)
    model.enable_input_require_grads()
    peft_config = get_peft_config(model_config)
    if peft_config is not None:
        # wrap here (not in the trainer) to see the number of parameters early
        model = get_peft_model(model, peft_config)
    print("trainable:", count_params(model))

    # reference = the model before training
    ref_model = load(model_config)
    ref_model.eval()

    tokenizer = AutoTokenizer.from_pretrained(model_config.model_name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<|finetune_right_pad_id|>"

    ################
    # Dataset
    ################
    ds = load_from_disk(data_args.dataset_path)

    def process(row):
        row["prompt"] = tokenizer.apply_chat_template(row["chosen"][:-1], tokenize=False, add_generation_prompt=True)
        row["prompt"] = row["prompt"].removeprefix(tokenizer.bos_token)
        row["chosen"] = row["chosen"][-1]["content"] + "<|eot_id|>"
        row["rejected"] = row["rejected"][-1]["content"] + "<|eot_id|>"
        return row

    ds = ds.map(process, num_proc=8)

    ################
    # Training
    ################
    trainer = DPOTrainer(
        model,
        ref_model,
        args=training_args,
        train_dataset=ds[data_args.train_split],
        eval_dataset=ds[data_args.test_split],
        tokenizer=tokenizer,
    )
    last = get_last_checkpoint(training_args.output_dir) if os.path.isdir(training_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
