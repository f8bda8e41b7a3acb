import argparse
import math
import os

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-3B-Instruct"
MAX_LENGTH = 2048


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--output-dir", required=True)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--accumulation", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--resume", default=None, help="folder written by save_state")
    return p.parse_args()


def encode(row, tokenizer):
    turns = [{"role": "user", "content": row["question"]}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True)
    answer = tokenizer(row["answer"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[:MAX_LENGTH]
    labels = ([-100] * len(prompt) + answer)[:MAX_LENGTH]
    padded = tokenizer.pad({"input_ids": ids}, padding="max_length", max_length=MAX_LENGTH)
    padded["labels"] = labels + [-100] * (MAX_LENGTH - len(labels))
    return padded


def main():
    args = parse()
    set_seed(args.seed)
    accelerator = Accelerator(
        gradient_accumulation_steps=args.accumulation,
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    with accelerator.main_process_first():
        ds = load_dataset("json", data_files=args.data, split="train")
        ds = ds.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=ds.column_names, num_proc=8)
    ds.set_format("torch")
    loader = DataLoader(
        ds, batch_size=args.batch_size, shuffle=True, drop_last=True, num_workers=2, pin_memory=True
    )

    model = AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="sdpa")
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})

    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.lr, weight_decay=0.0, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    per_epoch = math.ceil(len(loader) / args.accumulation)
    total = args.epochs * per_epoch // accelerator.num_processes
    schedule = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    accelerator.register_for_checkpointing(schedule)

    first_epoch = 0
    if args.resume:
        accelerator.load_state(args.resume)
        first_epoch = int(os.path.basename(args.resume.rstrip("/")).split("-")[-1]) + 1

    step = 0
    for epoch in range(first_epoch, args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(trainable, 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    schedule.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % 25 == 0:
                    accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        accelerator.save_state(os.path.join(args.output_dir, f"epoch-{epoch}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        os.path.join(args.output_dir, "adapter"), is_main_process=accelerator.is_main_process
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
