"""One-sentence summaries (XSum) with a 1B decoder, launched by job.sbatch."""
import argparse
import os
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

IGNORE = -100


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--max-len", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--seed", type=int, default=99)
    p.add_argument("--bf16", action="store_true", help="train in bf16 mixed precision")
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--save-every", type=int, default=1000)
    return p.parse_args()


def encode(row, tokenizer, max_len):
    """`<bos> article TL;DR: summary <eos>`, the loss is on the summary."""
    summary = tokenizer(" " + row["summary"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    hint = tokenizer("\nTL;DR:", add_special_tokens=False)["input_ids"]
    room = max_len - len(summary) - len(hint)
    article = tokenizer(row["document"], truncation=True, max_length=room)["input_ids"]
    prompt = article + hint
    return {"input_ids": prompt + summary, "labels": [IGNORE] * len(prompt) + summary}


class Pad:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)

        def fill(key, value):
            return torch.tensor([r[key] + [value] * (width - len(r[key])) for r in rows])

        mask = torch.tensor([[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in rows])
        return {"input_ids": fill("input_ids", self.pad_id), "labels": fill("labels", IGNORE), "attention_mask": mask}


def summary_loss(model, batch):
    """Mean negative log-likelihood of the summary tokens."""
    labels = batch["labels"][:, 1:]
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    log_probs = F.log_softmax(logits[:, :-1].float(), dim=-1)
    keep = labels != IGNORE
    picked = log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * keep).sum() / keep.sum()


def main():
    args = get_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    pad_id = tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")
    with accelerator.main_process_first():
        data = load_dataset("EdinburghNLP/xsum", split="train")
        data = data.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_len": args.max_len},
            remove_columns=data.column_names,
            num_proc=16,
        )
    loader = DataLoader(
        data,
        batch_size=args.batch,
        shuffle=True,
        drop_last=True,
        collate_fn=Pad(pad_id),
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = args.epochs * len(loader) // args.accum
    scheduler = get_cosine_schedule_with_warmup(optimizer, updates // 33, updates)

    step, seen_loss, seen_batches = 0, 0.0, 0
    start = time.time()
    model.train()
    for epoch in range(args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = summary_loss(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            seen_loss += loss.item()
            seen_batches += 1
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.log_every == 0:
                rows = step * args.batch * args.accum * accelerator.num_processes
                tokens_per_s = rows * args.max_len / (time.time() - start)
                accelerator.print(
                    f"epoch {epoch} step {step}/{updates} loss {seen_loss / seen_batches:.4f} "
                    f"{tokens_per_s:,.0f} training tokens/s",
                    flush=True,
                )
                seen_loss, seen_batches = 0.0, 0
            if step % args.save_every == 0:
                accelerator.save_state(os.path.join(args.out, f"step_{step}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
