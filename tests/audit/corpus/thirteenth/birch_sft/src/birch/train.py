import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from birch.args import load_args
from birch.data import QADataset


def main():
    args = load_args(sys.argv[1])
    accum = max(1, args.total_batch_size // args.per_device_batch_size)
    accelerator = Accelerator(gradient_accumulation_steps=accum)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(args.model_name, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    dataset = QADataset(args.train_file, tokenizer, args.max_length)
    loader = DataLoader(
        dataset,
        batch_size=args.per_device_batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    steps_per_epoch = max(1, len(loader) // accum)
    total_steps = steps_per_epoch * args.num_epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(args.warmup_ratio * total_steps), total_steps)
    accelerator.register_for_checkpointing(scheduler)

    first_epoch = 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        first_epoch = int(args.resume_from.rstrip("/").split("_")[-1]) + 1

    model.train()
    for epoch in range(first_epoch, args.num_epochs):
        running, seen, step = 0.0, 0, 0
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                running += loss.item()
                seen += 1
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                if step % args.log_every == 0:
                    accelerator.print(f"epoch {epoch} step {step}/{steps_per_epoch} loss {running / seen:.4f}")
                    running, seen = 0.0, 0
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
