import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    default_data_collator,
    get_cosine_schedule_with_warmup,
)

MODEL = "google/flan-t5-base"


def build_data(tok, accelerator):
    raw = load_dataset("json", data_files={"train": "data/train.jsonl"}, split="train")

    def encode(rows):
        enc = tok(
            ["summarize: " + d for d in rows["dialogue"]],
            max_length=1024,
            padding="max_length",
            truncation=True,
        )
        labels = tok(text_target=rows["summary"], max_length=128, padding="max_length", truncation=True)
        enc["labels"] = labels["input_ids"]
        return enc

    with accelerator.main_process_first():
        return raw.map(encode, batched=True, num_proc=4, remove_columns=raw.column_names)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch_size", type=int, default=8)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--out", default="out")
    args = ap.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=args.accum, log_with="tensorboard", project_dir=args.out)
    accelerator.init_trackers("dialog-summarizer")
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSeq2SeqLM.from_pretrained(MODEL)
    train = build_data(tok, accelerator)
    loader = DataLoader(
        train, batch_size=args.batch_size, shuffle=True, collate_fn=default_data_collator,
        num_workers=4, pin_memory=True, persistent_workers=True,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    total = len(loader) * args.epochs // args.accum
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)

    ckpt = os.path.join(args.out, "last")
    start = 0
    if os.path.isdir(ckpt):
        accelerator.load_state(ckpt)
        with open(os.path.join(ckpt, "epoch.txt")) as f:
            start = int(f.read())

    model.train()
    step = start * len(loader)
    for epoch in range(start, args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            step += 1
            mean_loss = accelerator.gather(loss.detach()).mean().item()
            accelerator.log({"train/loss": mean_loss, "lr": sched.get_last_lr()[0]}, step=step)
        accelerator.save_state(ckpt)
        if accelerator.is_main_process:
            with open(os.path.join(ckpt, "epoch.txt"), "w") as f:
                f.write(str(epoch + 1))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.out)
        tok.save_pretrained(args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
