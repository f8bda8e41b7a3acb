import argparse
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--dataset_name", type=str, default="databricks/databricks-dolly-15k")
    parser.add_argument("--max_length", type=int, default=768)
    parser.add_argument("--per_device_train_batch_size", type=int, default=4)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--num_train_epochs", type=int, default=2)
    parser.add_argument("--lr_scheduler_type", type=str, default="cosine")
    parser.add_argument("--num_warmup_steps", type=int, default=50)
    parser.add_argument("--mixed_precision", type=str, default="bf16", choices=["no", "fp16", "bf16"])
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--output_dir", type=str, default="runs/dolly")
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    return parser.parse_args()


def make_collate(tokenizer, max_length):
    def collate(examples):
        texts = []
        for ex in examples:
            context = f"\n\nContext: {ex['context']}" if ex["context"] else ""
            texts.append(
                f"Question: {ex['instruction']}{context}\n\nAnswer: {ex['response']}{tokenizer.eos_token}"
            )
        batch = tokenizer(
            texts, padding="longest", truncation=True, max_length=max_length, return_tensors="pt"
        )
        batch["labels"] = batch["input_ids"].clone()
        return batch

    return collate


def main():
    args = parse_args()
    accelerator = Accelerator(log_with="tensorboard", project_dir=args.output_dir)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    model.config.use_cache = False

    train_dataset = load_dataset(args.dataset_name, split="train")
    train_dataloader = DataLoader(
        train_dataset,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=make_collate(tokenizer, args.max_length),
        num_workers=4,
        pin_memory=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)

    steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    max_train_steps = args.num_train_epochs * steps_per_epoch
    lr_scheduler = get_scheduler(
        args.lr_scheduler_type,
        optimizer=optimizer,
        num_warmup_steps=args.num_warmup_steps,
        num_training_steps=max_train_steps,
    )
    accelerator.register_for_checkpointing(lr_scheduler)

    if accelerator.is_main_process:
        accelerator.init_trackers("dolly")
    start_epoch = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        start_epoch = int(args.resume_from_checkpoint.rstrip("/").split("_")[-1]) + 1

    progress = tqdm(total=max_train_steps, disable=not accelerator.is_local_main_process)
    completed = 0
    for epoch in range(start_epoch, args.num_train_epochs):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    lr_scheduler.step()
                optimizer.zero_grad()

            mean_loss = accelerator.gather(loss.detach()).mean().item()
            progress.set_postfix(loss=f"{mean_loss:.4f}")
            if accelerator.sync_gradients:
                progress.update(1)
                completed += 1
                if completed % 20 == 0:
                    accelerator.log({"train/loss": mean_loss, "lr": lr_scheduler.get_last_lr()[0]}, step=completed)
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        os.path.join(args.output_dir, "final"),
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(os.path.join(args.output_dir, "final"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
