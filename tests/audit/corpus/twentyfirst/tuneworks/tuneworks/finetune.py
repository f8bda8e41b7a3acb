import math
import os
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    get_scheduler,
)

from tuneworks.arguments import FlatArguments
from tuneworks.packing import pack_rows, tokenize_rows


def main():
    (args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
    accelerator = Accelerator(
        mixed_precision="bf16", gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        ds = raw.map(tokenize_rows, batched=True, remove_columns=raw.column_names,
                     fn_kwargs={"tokenizer": tokenizer}, num_proc=8)
        ds = ds.map(pack_rows, batched=True, batch_size=2000, fn_kwargs={"block": args.max_seq_length})

    loader = DataLoader(
        ds, shuffle=True, batch_size=args.per_device_train_batch_size, drop_last=True,
        collate_fn=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        num_workers=2, pin_memory=True,
    )
    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    plain = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": args.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=args.learning_rate, fused=True,
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = math.ceil(len(loader) / args.gradient_accumulation_steps) * args.num_train_epochs
    scheduler = get_scheduler("linear", optimizer, int(total * args.warmup_ratio), total)

    start_epoch = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        start_epoch = int(os.path.basename(args.resume_from_checkpoint).split("_")[1]) + 1
        for _ in range(start_epoch * math.ceil(len(loader) / args.gradient_accumulation_steps)):
            scheduler.step()

    model.train()
    step, mark = 0, time.time()
    for epoch in range(start_epoch, args.num_train_epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                logits = model(input_ids=batch["input_ids"]).logits.float()
                loss = F.cross_entropy(
                    logits[:, :-1].reshape(-1, logits.size(-1)),
                    batch["labels"][:, 1:].reshape(-1),
                    ignore_index=-100,
                )
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % args.logging_steps == 0:
                    rate = args.logging_steps / (time.time() - mark)
                    accelerator.print(f"step {step}/{total} loss {loss.item():.3f} {rate:.2f} it/s")
                    mark = time.time()
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
