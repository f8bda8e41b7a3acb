import os
import time
from functools import partial

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_linear_schedule_with_warmup,
)

from arguments import FlatArguments

MARKER = "<|assistant|>\n"


def encode(row, tok, max_len):
    text = ""
    for m in row["messages"]:
        text += f"<|{m['role']}|>\n{m['content'].strip()}"
        text += tok.eos_token + "\n" if m["role"] == "assistant" else "\n"
    enc = tok(text.rstrip("\n"), truncation=True, max_length=max_len)
    ids = enc["input_ids"]
    labels = list(ids)
    head = text.rfind(MARKER)
    if head >= 0:
        n = len(tok(text[: head + len(MARKER)])["input_ids"])
        if n < len(ids):
            labels[:n] = [-100] * n
    return {"input_ids": ids, "attention_mask": enc["attention_mask"], "labels": labels}


def main():
    args = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0]
    accelerator = Accelerator(
        mixed_precision="bf16",
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.float32,
    )
    model.config.use_cache = False
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        train = raw.map(
            partial(encode, tok=tok, max_len=args.max_seq_length),
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
        )
    loader = DataLoader(
        train,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tok, padding="longest"),
        num_workers=4,
        pin_memory=True,
    )

    opt = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True
    )
    total = len(loader) * args.num_train_epochs // args.gradient_accumulation_steps
    sched = get_linear_schedule_with_warmup(opt, int(args.warmup_ratio * total), total)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)

    first_epoch = 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        first_epoch = int(args.resume_from.rstrip("/").rsplit("_", 1)[1])

    model.train()
    done, tokens, since = 0, 0, time.perf_counter()
    for epoch in range(first_epoch, args.num_train_epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
                logits = out.logits.float()
                shift_logits = logits[:, :-1, :].contiguous()
                shift_labels = batch["labels"][:, 1:].contiguous()
                loss = F.cross_entropy(
                    shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=-100
                )
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            tokens += batch["input_ids"].numel()
            if accelerator.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    value = loss.item()
                    rate = tokens * accelerator.num_processes / (time.perf_counter() - since)
                    accelerator.print(f"epoch {epoch} step {done} loss {value:.4f} tokens/s {rate:.0f}")
                    tokens, since = 0, time.perf_counter()
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch + 1}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir)
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
