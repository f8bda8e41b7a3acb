import argparse
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

from data_utils import InstructDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--train_file", type=str, required=True)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--max_length", type=int, default=1024)
    parser.add_argument("--per_device_batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--warmup_steps", type=int, default=20)
    parser.add_argument("--mixed_precision", type=str, default="no", choices=["no", "fp16", "bf16"])
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse_args()
    ddp_kwargs = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        log_with="tensorboard",
        project_dir=args.output_dir,
        kwargs_handlers=[ddp_kwargs],
    )
    set_seed(args.seed)
    accelerator.init_trackers("instruct")

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)

    rows = load_dataset("json", data_files=args.train_file, split="train")
    train_loader = DataLoader(
        InstructDataset(rows, tokenizer, args.max_length),
        batch_size=args.per_device_batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, padding="longest", label_pad_token_id=-100),
        pin_memory=True,
        num_workers=0,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)

    steps_per_epoch = math.ceil(len(train_loader) / args.gradient_accumulation_steps)
    scheduler = get_scheduler(
        "cosine",
        optimizer,
        num_warmup_steps=args.warmup_steps * accelerator.num_processes,
        num_training_steps=args.num_epochs * steps_per_epoch * accelerator.num_processes,
    )
    scheduler = accelerator.prepare(scheduler)

    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)

    step = 0
    model.train()
    for epoch in range(args.num_epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            accelerator.log({"loss": loss.item(), "lr": scheduler.get_last_lr()[0]}, step=step)
            step += 1
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main()
