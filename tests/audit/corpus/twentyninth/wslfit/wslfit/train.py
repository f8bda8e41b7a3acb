import os

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from . import settings
from .data import load
from .speed import CountingTrainer, SpeedCallback


def run(data, out, model=settings.MODEL, max_len=settings.MAX_LEN, **overrides):
    args = TrainingArguments(output_dir=out, **{**settings.TRAINING, **overrides})
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(
        model, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    base.config.use_cache = False
    net = get_peft_model(base, LoraConfig(**settings.LORA))
    net.print_trainable_parameters()

    callback = SpeedCallback()
    trainer = CountingTrainer(
        model=net,
        args=args,
        train_dataset=load(data, tokenizer, max_len),
        data_collator=default_data_collator,
        callbacks=[callback],
    )
    callback.trainer = trainer
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(os.path.join(out, "adapter"))
    tokenizer.save_pretrained(os.path.join(out, "adapter"))
