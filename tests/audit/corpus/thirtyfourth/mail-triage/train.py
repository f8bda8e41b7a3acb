import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    get_cosine_schedule_with_warmup,
)

NAME = "roberta-base"


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=3e-5)
    p.add_argument("--mixed-precision", default="no", choices=["no", "fp16", "bf16"])
    p.add_argument("--eval-every", type=int, default=200)
    return p.parse_args()


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    hits = torch.zeros((), device=accelerator.device)
    seen = 0
    for batch in loader:
        pred = model(**batch).logits.argmax(-1)
        pred, ref = accelerator.gather_for_metrics((pred, batch["labels"]))
        hits += (pred == ref).sum()
        seen += ref.numel()
    return hits.item() / seen


def main():
    args = parse()
    set_seed(11)
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.accum,
    )
    tok = AutoTokenizer.from_pretrained(NAME)
    data = load_from_disk(args.data)
    n_labels = len(set(data["train"]["labels"]))
    collate = DataCollatorWithPadding(tok, pad_to_multiple_of=8)
    train_loader = DataLoader(
        data["train"], batch_size=args.batch_size, shuffle=True, collate_fn=collate,
        num_workers=4, pin_memory=True, drop_last=True,
    )
    val_loader = DataLoader(
        data["test"], batch_size=64, collate_fn=collate, num_workers=2, pin_memory=True
    )

    model = AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=n_labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        model, optimizer, train_loader, val_loader
    )

    updates = args.epochs * (len(train_loader) // args.accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.06 * updates), updates)
    scheduler = accelerator.prepare(scheduler)

    done, running = 0, 0.0
    for epoch in range(args.epochs):
        model.train()
        for step, batch in enumerate(train_loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / args.accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            running = 0.98 * running + 0.02 * loss.item()

            if accelerator.sync_gradients:
                done += 1
                if done % 50 == 0:
                    accelerator.print(f"epoch {epoch} update {done} loss {running:.4f}")
                if done % args.eval_every == 0:
                    acc = evaluate(model, val_loader, accelerator)
                    accelerator.print(f"update {done} accuracy {acc:.4f}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        os.makedirs(args.out, exist_ok=True)
        torch.save(accelerator.unwrap_model(model).state_dict(), os.path.join(args.out, "model.pt"))
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
