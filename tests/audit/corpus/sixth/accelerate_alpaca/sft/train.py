import argparse
import logging
import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from .collate import Collator
from .data import ChatDataset, split_rows

log = logging.getLogger("sft")


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    p.add_argument("--train_file", default="data/alpaca_mix.jsonl")
    p.add_argument("--n_valid", type=int, default=2000)
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--batch_size", type=int, default=8, help="per GPU")
    p.add_argument("--grad_accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--warmup", type=float, default=0.03)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--output_dir", default="out")
    p.add_argument("--resume", default=None, help="a folder written by save_state")
    return p.parse_args()


def main():
    args = get_args()
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum, log_with="wandb")
    accelerator.init_trackers("alpaca-sft", config=vars(args))

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    train_rows, valid_rows = split_rows(args.train_file, args.n_valid)
    collate = Collator(tok.pad_token_id, args.max_len)
    train_dl = DataLoader(
        ChatDataset(train_rows, tok, args.max_len),
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        pin_memory=True,
        drop_last=True,
    )
    valid_dl = DataLoader(ChatDataset(valid_rows, tok, args.max_len), batch_size=args.batch_size, collate_fn=collate)

    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.ndim < 2]
    optim = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=True,
    )
    # the prepared scheduler advances num_processes steps per optimizer step
    sched_steps = math.ceil(len(train_dl) / args.grad_accum) * args.epochs
    sched = get_cosine_schedule_with_warmup(optim, int(args.warmup * sched_steps), sched_steps)

    model, optim, train_dl, valid_dl, sched = accelerator.prepare(model, optim, train_dl, valid_dl, sched)
    if args.resume:
        accelerator.load_state(args.resume)

    start_epoch = int(args.resume.rsplit("_", 1)[-1]) + 1 if args.resume else 0
    step = 0
    for epoch in range(start_epoch, args.epochs):
        model.train()
        train_dl.set_epoch(epoch)
        running = 0.0
        for batch in train_dl:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optim.step()
                sched.step()
                optim.zero_grad()
            running += accelerator.gather(loss.detach()).mean().item()
            if accelerator.sync_gradients:
                step += 1
                if step % 50 == 0:
                    accelerator.log({"loss": running / (50 * args.grad_accum), "lr": sched.get_last_lr()[0]}, step=step)
                    running = 0.0

        model.eval()
        losses = []
        with torch.no_grad():
            for batch in valid_dl:
                losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(args.batch_size)))
        accelerator.log({"eval_loss": torch.cat(losses).mean().item()}, step=step)
        accelerator.save_state(f"{args.output_dir}/epoch_{epoch}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main()
