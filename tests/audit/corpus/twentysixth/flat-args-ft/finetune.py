import math
import os
from dataclasses import dataclass, field
from typing import Optional

import torch
from accelerate import Accelerator
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
    model_name_or_path: str = field(metadata={"help": "Base model."})
    dataset_path: str = field(metadata={"help": "JSONL with `messages`."})
    output_dir: str = field(metadata={"help": "Where to save."})
    use_flash_attn: bool = field(default=True, metadata={"help": "Use FlashAttention-2."})
    max_seq_length: int = 2048
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    learning_rate: float = 2e-5
    num_train_epochs: int = 2
    warmup_ratio: float = 0.03
    heldout: int = 200
    logging_steps: int = 10
    checkpoint_epochs: bool = True
    resume: Optional[str] = field(default=None, metadata={"help": "A folder `epoch_N` to continue from."})


ROLE = {"system": "<|system|>\n", "user": "<|user|>\n", "assistant": "<|assistant|>\n"}


def encode(row, tok, max_len):
    """Loss only on what the assistant says."""
    ids, labels = [], []
    for m in row["messages"]:
        head = tok(ROLE[m["role"]], add_special_tokens=False).input_ids
        tail = tok.eos_token + "\n" if m["role"] == "assistant" else "\n"
        body = tok(m["content"].strip() + tail, add_special_tokens=False).input_ids
        ids += head + body
        labels += [-100] * len(head) + (body if m["role"] == "assistant" else [-100] * len(body))
    return {"input_ids": ids[:max_len], "labels": labels[:max_len], "attention_mask": [1] * min(len(ids), max_len)}


def main():
    (args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        trust_remote_code=True,
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with accelerator.main_process_first():
        raw = load_dataset("json", data_files=args.dataset_path, split="train")
        data = raw.map(
            encode,
            fn_kwargs={"tok": tok, "max_len": args.max_seq_length},
            num_proc=16,
            remove_columns=raw.column_names,
        )
        data = data.filter(lambda r: any(x != -100 for x in r["labels"]), num_proc=16)
        parts = data.train_test_split(test_size=args.heldout)

    collate = DataCollatorForSeq2Seq(tok, padding="longest", label_pad_token_id=-100)
    loader_kw = dict(
        batch_size=args.per_device_train_batch_size,
        collate_fn=collate,
        pin_memory=True,
        prefetch_factor=4,
    )
    train = DataLoader(parts["train"], shuffle=True, **loader_kw)
    heldout = DataLoader(parts["test"], **loader_kw)

    opt = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    model, opt, train, heldout = accelerator.prepare(model, opt, train, heldout)
    updates = math.ceil(len(train) / args.gradient_accumulation_steps) * args.num_train_epochs
    sched = accelerator.prepare(
        get_scheduler(
            "linear",
            opt,
            num_warmup_steps=int(args.warmup_ratio * updates) * accelerator.num_processes,
            num_training_steps=updates * accelerator.num_processes,
        )
    )

    first = 0
    if args.resume:
        accelerator.load_state(args.resume)
        first = int(args.resume.rstrip("/").rsplit("_", 1)[1]) + 1

    done = 0
    total = torch.zeros((), device=accelerator.device)
    for epoch in range(first, args.num_train_epochs):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                opt.step()
                sched.step()
                opt.zero_grad()
            total += loss.detach() / args.gradient_accumulation_steps
            if accelerator.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    mean = accelerator.reduce(total, "mean").item() / args.logging_steps
                    accelerator.print(f"step {done}/{updates} loss {mean:.4f}")
                    total.zero_()
        model.eval()
        losses = []
        with torch.no_grad():
            for batch in heldout:
                losses.append(accelerator.gather(model(**batch).loss.detach()[None]))
        accelerator.print(f"epoch {epoch} heldout {torch.cat(losses).mean().item():.4f}")
        if args.checkpoint_epochs:
            accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=state,
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
