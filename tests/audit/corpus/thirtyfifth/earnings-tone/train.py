import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    get_linear_schedule_with_warmup,
)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="FacebookAI/roberta-large")
    p.add_argument("--train", required=True)
    p.add_argument("--valid", required=True)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--accumulation", type=int, default=4)
    p.add_argument("--mixed-precision", default="no", choices=["no", "fp16", "bf16"])
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--output", default="runs/tone")
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.accumulation,
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    data = load_dataset("csv", data_files={"train": args.train, "valid": args.valid})

    with accelerator.main_process_first():
        data = data.map(
            lambda b: tokenizer(b["sentence"], truncation=True, max_length=256),
            batched=True,
            remove_columns=["sentence"],
            load_from_cache_file=False,
        )
    data = data.rename_column("label", "labels")
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
    train_loader = DataLoader(
        data["train"], args.batch_size, shuffle=True, drop_last=True, collate_fn=collate, num_workers=2, pin_memory=True
    )
    valid_loader = DataLoader(data["valid"], 64, collate_fn=collate, num_workers=2, pin_memory=True)

    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(model, optimizer, train_loader, valid_loader)

    total = args.epochs * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.1 * total), total)
    scheduler = accelerator.prepare(scheduler)

    best, step = 0.0, 0
    for epoch in range(args.epochs):
        model.train()
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f}")

        model.eval()
        hits = count = 0
        for batch in valid_loader:
            with torch.no_grad():
                guess = model(**batch).logits.argmax(-1)
            guess, truth = accelerator.gather_for_metrics((guess, batch["labels"]))
            hits += (guess == truth).sum()
            count += truth.numel()
        accuracy = (hits / count).item()
        accelerator.print(f"epoch {epoch} accuracy {accuracy:.4f}")
        if accuracy > best:
            best = accuracy
            if accelerator.is_main_process:
                Path(args.output).mkdir(parents=True, exist_ok=True)
                torch.save(model.state_dict(), f"{args.output}/model.pt")
        accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
