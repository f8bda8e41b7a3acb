import json

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    get_linear_schedule_with_warmup,
)

BASE, EPOCHS, BATCH, ACCUMULATE, LR = "answerdotai/ModernBERT-base", 3, 16, 2, 5e-5


def main():
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATE)
    set_seed(8)
    with open("data/tokens/dataset_info.json") as handle:
        topics = json.load(handle)["topics"]
    train, test = load_from_disk("data/tokens/train"), load_from_disk("data/tokens/test")
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
    train_loader = DataLoader(train, BATCH, shuffle=True, collate_fn=collate, num_workers=4, pin_memory=True)
    test_loader = DataLoader(test, 32, collate_fn=collate, num_workers=2, pin_memory=True)

    model = AutoModelForSequenceClassification.from_pretrained(
        BASE, num_labels=len(topics), problem_type="multi_label_classification"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, fused=True)
    updates = EPOCHS * len(train_loader) // ACCUMULATE
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.05 * updates), updates)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    step = 0
    for epoch in range(EPOCHS):
        model.train()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += accelerator.sync_gradients
            if accelerator.sync_gradients and step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

        model.eval()
        counts = torch.zeros(3, device=accelerator.device)
        for batch in test_loader:
            with torch.no_grad():
                guess = model(**batch).logits > 0
            guess, truth = accelerator.gather_for_metrics((guess, batch["labels"].bool()))
            counts += torch.stack([(guess & truth).sum(), guess.sum(), truth.sum()])
        f1 = 2 * counts[0] / (counts[1] + counts[2]).clamp(min=1)
        accelerator.print(f"epoch {epoch} micro f1 {f1.item():.4f}")
        accelerator.save_state(f"runs/wire/epoch{epoch}")
    accelerator.unwrap_model(model).save_pretrained(
        "runs/wire/final", is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained("runs/wire/final")


if __name__ == "__main__":
    main()
