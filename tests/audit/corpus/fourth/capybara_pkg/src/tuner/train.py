"""Entry point: `torchrun ... -m tuner.train`."""
import argparse
import os
from dataclasses import fields

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from .layers import install_clips
from .options import Options, trainer_options


def parse() -> Options:
    p = argparse.ArgumentParser()
    for f in fields(Options):
        if f.name != "lora_targets":
            p.add_argument(f"--{f.name.replace('_', '-')}", type=f.type, default=f.default)
    return Options(**vars(p.parse_args()))


def build(o: Options):
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.bfloat16, attn_implementation=o.attention)
    model.config.use_cache = False
    n = install_clips(model, o.clip_limit)
    print(f"{n} blocks with outlier clipping")
    return model


def main() -> None:
    o = parse()
    set_seed(o.seed)
    tokenizer = AutoTokenizer.from_pretrained(o.model)
    data = load_dataset(o.dataset, split="train")

    trainer = SFTTrainer(
        model=build(o),
        args=SFTConfig(**trainer_options(o)),
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32, lora_alpha=64, lora_dropout=0.0, task_type="CAUSAL_LM", target_modules=o.lora_targets
        ),
    )
    last = get_last_checkpoint(o.out) if os.path.isdir(o.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(o.out)


if __name__ == "__main__":
    main()
