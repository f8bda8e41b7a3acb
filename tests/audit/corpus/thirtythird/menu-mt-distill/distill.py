import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator, get_cosine_schedule_with_warmup

from loss import mixed


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--teacher", required=True)
    ap.add_argument("--student", required=True)
    ap.add_argument("--train", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"], default="no")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=5e-5)
    ap.add_argument("--max-length", type=int, default=512)
    ap.add_argument("--seed", type=int, default=0)
    return ap.parse_args()


def encoder(tokenizer, max_length):
    def encode(row):
        prompt = tokenizer(f"Translate to {row['lang']}: {row['src']}\n")["input_ids"]
        answer = tokenizer(row["tgt"])["input_ids"] + [tokenizer.eos_token_id]
        ids = prompt + answer
        labels = [-100] * len(prompt) + answer
        out = tokenizer.pad({"input_ids": ids}, padding="max_length", max_length=max_length)
        out["labels"] = labels + [-100] * (max_length - len(labels))
        return out

    return encode


def main():
    args = get_args()
    accelerator = Accelerator(mixed_precision=args.mixed_precision)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.student)
    tokenizer.padding_side = "right"
    rows = load_dataset("json", data_files=args.train, split="train")
    with accelerator.main_process_first():
        rows = rows.filter(lambda r: len(r["src"]) + len(r["tgt"]) < 600)
        rows = rows.map(encoder(tokenizer, args.max_length), remove_columns=rows.column_names, num_proc=8)
    loader = DataLoader(rows, batch_size=args.batch, shuffle=True, drop_last=True,
                        collate_fn=default_data_collator, num_workers=4, pin_memory=True)

    student = AutoModelForCausalLM.from_pretrained(args.student, torch_dtype=torch.float32, attn_implementation="sdpa")
    teacher = AutoModelForCausalLM.from_pretrained(args.teacher, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    teacher.to(accelerator.device).eval()
    student.config.use_cache = teacher.config.use_cache = False

    optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * total), total)
    student, optimizer, loader, scheduler = accelerator.prepare(student, optimizer, loader, scheduler)

    student.train()
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            labels = batch.pop("labels")
            wanted = teacher(**batch).logits
            logits = student(**batch).logits
            loss = mixed(logits, wanted, labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(student).save_pretrained(args.out, safe_serialization=True)
        tokenizer.save_pretrained(args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
