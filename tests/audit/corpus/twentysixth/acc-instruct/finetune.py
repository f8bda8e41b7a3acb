import argparse
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from data import build


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name", required=True)
    p.add_argument("--data_file", required=True)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--per_device_batch_size", type=int, default=8)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--mixed_precision", default="no", choices=["no", "fp16", "bf16"])
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--log_every", type=int, default=20)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def main():
    args = parse()
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(args.model_name)
    model.config.use_cache = False

    with accelerator.main_process_first():
        train, collate = build(tokenizer, args.data_file)
    loader = DataLoader(train, batch_size=args.per_device_batch_size, shuffle=True, collate_fn=collate,
                        num_workers=4, pin_memory=True, drop_last=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = math.ceil(len(loader) / args.gradient_accumulation_steps) * args.epochs
    scheduler = get_scheduler(
        "cosine",
        optimizer,
        num_warmup_steps=int(0.03 * updates) * accelerator.num_processes,
        num_training_steps=updates * accelerator.num_processes,
    )
    scheduler = accelerator.prepare(scheduler)

    first_epoch = 0
    if args.resume:
        accelerator.load_state(args.resume)
        first_epoch = int(args.resume.rstrip("/").split("_")[-1]) + 1

    step = 0
    tokens = torch.zeros((), device=accelerator.device)
    loss_sum = torch.zeros((), device=accelerator.device)
    tic = time.perf_counter()
    for epoch in range(first_epoch, args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            loss_sum += loss.detach()
            tokens += batch["input_ids"].numel()
            if accelerator.sync_gradients:
                step += 1
                if step % args.log_every == 0:
                    tps = accelerator.reduce(tokens, "sum").item() / (time.perf_counter() - tic)
                    accelerator.print(f"{epoch} {step} loss={loss_sum.item() / args.log_every:.4f} tokens/s={tps:.0f}")
                    tokens.zero_()
                    loss_sum.zero_()
                    tic = time.perf_counter()
        accelerator.save_state(f"{args.output_dir}/epoch_{epoch}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
