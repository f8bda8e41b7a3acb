import math
import os

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

from instruct_tune.arguments import FlatArguments


def encode(example, tokenizer, max_len):
    msgs = example["messages"]
    ids = tokenizer.apply_chat_template(msgs)
    labels = list(ids)
    for i, m in enumerate(msgs):
        if m["role"] == "assistant":
            continue
        start = len(tokenizer.apply_chat_template(msgs[:i])) if i else 0
        nxt = i + 1 < len(msgs) and msgs[i + 1]["role"] == "assistant"
        end = len(tokenizer.apply_chat_template(msgs[: i + 1], add_generation_prompt=nxt))
        labels[start:end] = [-100] * (end - start)
    return {"input_ids": ids[:max_len], "labels": labels[:max_len]}


def main():
    (args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path, trust_remote_code=args.trust_remote_code)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        trust_remote_code=args.trust_remote_code,
        use_cache=False,
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        train = raw.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_len": args.max_seq_length},
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
        )
    train = train.filter(lambda r: any(x != -100 for x in r["labels"]))

    loader = DataLoader(
        train,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, model=None, padding="longest"),
        num_workers=4,
        pin_memory=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    per_epoch = math.ceil(len(loader) / accelerator.num_processes / args.gradient_accumulation_steps)
    max_steps = per_epoch * args.num_train_epochs
    scheduler = get_scheduler(
        "linear",
        optimizer,
        num_warmup_steps=int(max_steps * args.warmup_ratio) * accelerator.num_processes,
        num_training_steps=max_steps * accelerator.num_processes,
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    done = 0
    total = torch.zeros((), device=accelerator.device)
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total += loss.detach().float()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            done += 1
            if done % args.logging_steps == 0:
                mean = accelerator.reduce(total, "mean") / args.logging_steps / args.gradient_accumulation_steps
                accelerator.print(f"step {done}/{max_steps} loss {mean.item():.4f}")
                total.zero_()
            if done % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{done}"))

    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=state
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
