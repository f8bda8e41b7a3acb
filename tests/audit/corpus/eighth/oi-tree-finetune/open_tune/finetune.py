# Derived from open-instruct's finetune.py (Apache 2.0)
import logging
import math
import os
import time
from dataclasses import dataclass, field
from typing import Optional

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_scheduler,
)

logger = get_logger(__name__)


@dataclass
class FlatArguments:
    model_name_or_path: str
    train_file: str
    tokenizer_name: Optional[str] = None
    max_seq_length: int = 2048
    preprocessing_num_workers: int = 16
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    learning_rate: float = 2e-5
    lr_scheduler_type: str = "linear"
    warmup_ratio: float = 0.0
    weight_decay: float = 0.0
    num_train_epochs: int = 1
    output_dir: str = "output/"
    seed: int = field(default=42, metadata={"help": "A seed for reproducible training."})
    logging_steps: int = 1
    checkpointing_steps: int = 500


def encode(example, tokenizer, max_seq_length):
    """Chat -> ids, everything but the assistant's turns is -100."""
    messages = example["messages"]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, truncation=True, max_length=max_seq_length)
    labels = [-100] * len(ids)
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        start = len(tokenizer.apply_chat_template(messages[:i], tokenize=True, add_generation_prompt=True))
        end = len(tokenizer.apply_chat_template(messages[: i + 1], tokenize=True))
        labels[start:end] = ids[start:end]
    return {"input_ids": ids, "labels": labels[: len(ids)], "attention_mask": [1] * len(ids)}


def last_checkpoint(folder):
    if not os.path.isdir(folder):
        return None
    steps = [int(d[5:]) for d in os.listdir(folder) if d.startswith("step_")]
    return os.path.join(folder, f"step_{max(steps)}") if steps else None


def main(args: FlatArguments):
    start_time = time.time()
    accelerator = Accelerator()
    # --gradient_accumulation_steps is for all GPUs together
    accum = max(1, args.gradient_accumulation_steps // accelerator.num_processes)
    accelerator.gradient_accumulation_steps = accum
    if accelerator.state.deepspeed_plugin is not None:
        accelerator.state.deepspeed_plugin.deepspeed_config["gradient_accumulation_steps"] = accum

    logging.basicConfig(level=logging.INFO)
    logger.info(f"{args}")

    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path, torch_dtype=torch.bfloat16, attn_implementation="sdpa", use_cache=False
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.compile()

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        train = raw.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_seq_length": args.max_seq_length},
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
            desc="Tokenizing",
        )
        train = train.filter(lambda e: any(x != -100 for x in e["labels"]))

    loader = DataLoader(
        train,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer=tokenizer, model=model, padding="longest"),
        batch_size=args.per_device_train_batch_size,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True)

    updates_per_epoch = math.ceil(len(loader) / accelerator.num_processes / accum)
    max_train_steps = args.num_train_epochs * updates_per_epoch
    # the prepared scheduler makes num_processes steps at each update
    scheduler_steps = max_train_steps * accelerator.num_processes
    lr_scheduler = get_scheduler(
        args.lr_scheduler_type,
        optimizer=optimizer,
        num_warmup_steps=int(scheduler_steps * args.warmup_ratio),
        num_training_steps=scheduler_steps,
    )
    model, optimizer, loader, lr_scheduler = accelerator.prepare(model, optimizer, loader, lr_scheduler)

    completed, start_epoch, skip = 0, 0, 0
    ckpt = last_checkpoint(args.output_dir)
    if ckpt is not None:
        accelerator.load_state(ckpt)
        completed = int(ckpt.rsplit("_", 1)[1])
        start_epoch = completed // updates_per_epoch
        skip = (completed - start_epoch * updates_per_epoch) * accum

    local_tokens = torch.tensor(0, dtype=torch.int64, device=accelerator.device)
    total_loss = torch.zeros((), device=accelerator.device)
    for epoch in range(start_epoch, args.num_train_epochs):
        loader.set_epoch(epoch)
        active = accelerator.skip_first_batches(loader, skip) if skip and epoch == start_epoch else loader
        for batch in active:
            local_tokens += batch["input_ids"].numel()
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total_loss += loss.detach()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                lr_scheduler.step()
            if not accelerator.sync_gradients:
                continue
            completed += 1
            if completed % args.logging_steps == 0:
                tokens = accelerator.gather(local_tokens).sum().item()
                avg = accelerator.gather(total_loss).mean().item() / accum / args.logging_steps
                per_device = tokens / accelerator.num_processes / (time.time() - start_time)
                logger.info(f"step {completed}/{max_train_steps} loss {avg:.4f} per_second_per_device {per_device:.0f}")
                total_loss.zero_()
            if completed % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{completed}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model),
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0])
