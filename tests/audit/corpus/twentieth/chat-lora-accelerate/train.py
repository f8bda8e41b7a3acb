import argparse
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from dialogs import Collator, load_tokenized


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model_name", required=True)
    ap.add_argument("--train_file", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--max_len", type=int, default=2048)
    ap.add_argument("--per_device_batch", type=int, default=4)
    ap.add_argument("--grad_accum", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-4)
    ap.add_argument("--warmup", type=float, default=0.03)
    ap.add_argument("--log_every", type=int, default=20)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--resume_from", default=None)
    return ap.parse_args()


def main():
    args = get_args()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.grad_accum,
        log_with="tensorboard",
        project_dir=args.out,
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        args.model_name,
        attn_implementation="sdpa",
        device_map="auto",
    )
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with accelerator.main_process_first():
        train_set = load_tokenized(args.train_file, tokenizer, args.max_len)
    loader = DataLoader(
        train_set,
        batch_size=args.per_device_batch,
        shuffle=True,
        collate_fn=Collator(tokenizer),
        num_workers=2,
        pin_memory=True,
    )

    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.0, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    updates = math.ceil(len(loader) / args.grad_accum) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(args.warmup * updates), updates)
    accelerator.register_for_checkpointing(scheduler)
    accelerator.init_trackers("chat-lora")

    start_epoch = 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        start_epoch = int(args.resume_from.rstrip("/").split("epoch")[-1]) + 1

    done = start_epoch * math.ceil(len(loader) / args.grad_accum)
    for epoch in range(start_epoch, args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                mean_loss = accelerator.gather(loss.detach()).mean().item()
                loss = loss / args.grad_accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % args.log_every == 0:
                    accelerator.log({"loss": mean_loss, "lr": scheduler.get_last_lr()[0]}, step=done)
        accelerator.save_state(f"{args.out}/epoch{epoch}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
