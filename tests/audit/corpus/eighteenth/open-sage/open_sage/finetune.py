import math
import os
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_scheduler,
)

from masking import encode_example


@dataclass
class FlatArguments:
    model_name_or_path: str = field(metadata={"help": "model to tune"})
    train_file: str = field(metadata={"help": "jsonl with messages"})
    output_dir: str = field(default="output")
    max_seq_length: int = field(default=2048)
    per_device_train_batch_size: int = field(default=4)
    gradient_accumulation_steps: int = field(default=1)
    learning_rate: float = field(default=1e-5)
    warmup_ratio: float = field(default=0.0)
    weight_decay: float = field(default=0.0)
    num_train_epochs: int = field(default=2)
    gradient_checkpointing: bool = field(default=False)
    logging_steps: int = field(default=20)
    seed: int = field(default=42)
    resume_from: Optional[str] = field(default=None, metadata={"help": "an epoch_N folder"})


def main(args: FlatArguments):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, attn_implementation="sdpa")
    model.config.use_cache = False
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with accelerator.main_process_first():
        ds = load_dataset("json", data_files=args.train_file, split="train")
        encode = partial(encode_example, tokenizer=tokenizer, max_seq_length=args.max_seq_length)
        ds = ds.map(encode, remove_columns=ds.column_names, num_proc=16)
    loader = DataLoader(
        ds,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        num_workers=2,
        pin_memory=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
    )

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    updates = args.num_train_epochs * math.ceil(len(loader) / args.gradient_accumulation_steps)
    scheduler = get_scheduler("linear", optimizer, int(args.warmup_ratio * updates), updates)
    accelerator.register_for_checkpointing(scheduler)

    first_epoch = 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        first_epoch = int(args.resume_from.rstrip("/").split("_")[-1]) + 1

    completed, window_loss, window = 0, 0.0, 0
    for epoch in range(first_epoch, args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            window_loss += loss.item()
            window += 1
            if accelerator.sync_gradients:
                completed += 1
                if completed % args.logging_steps == 0:
                    accelerator.print(f"update {completed}/{updates} loss {window_loss / window:.4f}")
                    window_loss, window = 0.0, 0
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0])
