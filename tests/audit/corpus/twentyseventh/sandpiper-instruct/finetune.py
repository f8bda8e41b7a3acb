import math
import time
from dataclasses import dataclass, field

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


@dataclass
class FlatArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-3.2-3B-Instruct")
    train_file: str = field(default="data/train.jsonl")
    output_dir: str = field(default="output/sandpiper")
    max_seq_length: int = field(default=2048)
    per_device_train_batch_size: int = field(default=2)
    gradient_accumulation_steps: int = field(default=1)
    learning_rate: float = field(default=1e-5)
    lr_scheduler_type: str = field(default="linear")
    warmup_ratio: float = field(default=0.0)
    weight_decay: float = field(default=0.0)
    num_train_epochs: int = field(default=2)
    preprocessing_num_workers: int = field(default=8)
    logging_steps: int = field(default=10)
    seed: int = field(default=42)


def encode(row, tok, max_len):
    msgs = row["messages"]
    full = tok.apply_chat_template(msgs, tokenize=False)
    prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
    ids = tok(full, truncation=True, max_length=max_len)["input_ids"]
    n = len(tok(prompt, truncation=True, max_length=max_len)["input_ids"])
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def main():
    args = HfArgumentParser((FlatArguments,)).parse_args_into_dataclasses()[0]
    acc = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision="bf16")
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with acc.main_process_first():
        ds = load_dataset("json", data_files=args.train_file, split="train")
        ds = ds.map(
            encode,
            fn_kwargs={"tok": tok, "max_len": args.max_seq_length},
            remove_columns=ds.column_names,
            num_proc=args.preprocessing_num_workers,
        )
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]))

    loader = DataLoader(
        ds,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tok, padding="longest"),
        num_workers=2,
        pin_memory=True,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True)
    model, opt, loader = acc.prepare(model, opt, loader)
    per_epoch = math.ceil(len(loader) / args.gradient_accumulation_steps)
    total = per_epoch * args.num_train_epochs
    sched = acc.prepare(
        get_scheduler(
            args.lr_scheduler_type,
            opt,
            num_warmup_steps=int(args.warmup_ratio * total) * acc.num_processes,
            num_training_steps=total * acc.num_processes,
        )
    )

    model.train()
    done, seen, mark = 0, 0, time.perf_counter()
    for epoch in range(args.num_train_epochs):
        for batch in loader:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            seen += batch["input_ids"].numel()
            if acc.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    value = loss.item()
                    now = time.perf_counter()
                    acc.print(f"{done}/{total} loss {value:.4f} training tokens/s/gpu {seen / (now - mark):.0f}")
                    seen, mark = 0, now
        acc.save_state(f"{args.output_dir}/epoch_{epoch}")

    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=acc.is_main_process, save_function=acc.save
    )
    if acc.is_main_process:
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
