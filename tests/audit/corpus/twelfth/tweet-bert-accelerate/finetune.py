import math

import pandas as pd
import torch
import typer
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_scheduler


def load_tensors(path: str, tokenizer) -> TensorDataset:
    frame = pd.read_csv(path)
    enc = tokenizer(
        frame["text"].tolist(),
        truncation=True,
        padding="max_length",
        max_length=512,
        return_tensors="pt",
    )
    labels = torch.tensor(frame["label"].to_list())
    return TensorDataset(enc["input_ids"], enc["attention_mask"], labels)


def main(
    train_file: str = "data/train.csv",
    valid_file: str = "data/valid.csv",
    model_name: str = "google-bert/bert-base-uncased",
    output_dir: str = "out/tweet-bert",
    epochs: int = 3,
    batch_size: int = 32,
    grad_accum: int = 4,
    lr: float = 3e-5,
    precision: str = "no",
    seed: int = 7,
):
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=grad_accum)
    set_seed(seed)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    train_set = load_tensors(train_file, tokenizer)
    valid_set = load_tensors(valid_file, tokenizer)
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=16, pin_memory=True)
    valid_loader = DataLoader(valid_set, batch_size=batch_size * 2, pin_memory=True)

    model = AutoModelForSequenceClassification.from_pretrained(model_name, num_labels=3)
    model.to(accelerator.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(
        model, optimizer, train_loader, valid_loader
    )
    total = epochs * math.ceil(len(train_loader) / grad_accum)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=int(0.06 * total), num_training_steps=total)

    step = 0
    running = torch.zeros((), device=accelerator.device)
    for epoch in range(epochs):
        model.train()
        for input_ids, attention_mask, labels in train_loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss
                accelerator.backward(loss / grad_accum)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            running += loss.detach() / grad_accum
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                if step % 50 == 0:
                    accelerator.print(f"step {step}/{total} loss {running.item() / 50:.4f}")
                    running.zero_()

        model.eval()
        right, seen = 0, 0
        for input_ids, attention_mask, labels in valid_loader:
            with torch.no_grad():
                pred = model(input_ids=input_ids, attention_mask=attention_mask).logits.argmax(-1)
            pred, labels = accelerator.gather_for_metrics((pred, labels))
            right += (pred == labels).sum()
            seen += labels.numel()
        accelerator.print(f"epoch {epoch} accuracy {float(right) / seen:.4f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(output_dir)


if __name__ == "__main__":
    typer.run(main)
