"""Continued pretraining of Gemma-3-1B on Czech statutes and court decisions."""
import argparse
import json
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator, get_cosine_schedule_with_warmup


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="google/gemma-3-1b-pt")
    ap.add_argument("--data", default="data/statutes/*.jsonl.gz")
    ap.add_argument("--block", type=int, default=2048)
    ap.add_argument("--micro-batch", type=int, default=4, help="sequences per GPU and forward pass")
    ap.add_argument("--accum", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--save-steps", type=int, default=100)
    ap.add_argument("--seed", type=int, default=20)
    ap.add_argument("--out", default="out/statute-gemma")
    ap.add_argument("--resume", default=None, help="a checkpoint folder, e.g. out/statute-gemma/step_500")
    return ap.parse_args()


def build_dataset(args, tok, accelerator):
    raw = load_dataset("json", data_files=args.data, split="train")

    def encode(batch):
        return {"input_ids": tok(batch["text"], add_special_tokens=False)["input_ids"]}

    def chunk(batch):
        flat = [t for ids in batch["input_ids"] for t in ids]
        n = len(flat) // args.block * args.block
        blocks = [flat[i : i + args.block] for i in range(0, n, args.block)]
        return {"input_ids": blocks, "labels": [b[:] for b in blocks]}

    with accelerator.main_process_first():
        enc = raw.map(encode, batched=True, num_proc=24, remove_columns=raw.column_names,
                      load_from_cache_file=False, desc="tokenise")
        return enc.map(chunk, batched=True, batch_size=2000, num_proc=24,
                       load_from_cache_file=False, desc="chunk")


def main():
    args = parse()
    accelerator = Accelerator(mixed_precision="no", gradient_accumulation_steps=args.accum)
    set_seed(args.seed)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa", use_cache=False
    )
    model.gradient_checkpointing_enable()

    ds = build_dataset(args, tok, accelerator).train_test_split(test_size=0.005, seed=args.seed)
    per_gpu = max(1, args.micro_batch // accelerator.num_processes)
    loader = DataLoader(ds["train"], batch_size=per_gpu, shuffle=True, drop_last=True,
                        num_workers=args.workers, pin_memory=True, collate_fn=default_data_collator)
    val = DataLoader(ds["test"], batch_size=args.micro_batch, num_workers=args.workers,
                     pin_memory=True, collate_fn=default_data_collator)

    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    model, opt, loader, val = accelerator.prepare(model, opt, loader, val)
    total = math.ceil(len(loader) / args.accum) * args.epochs
    # the schedule is not prepared: it is stepped once per optimizer update, on every rank alike
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    accelerator.register_for_checkpointing(sched)

    start, done = 0, 0
    if args.resume:
        accelerator.load_state(args.resume)
        with open(os.path.join(args.resume, "progress.json")) as f:
            progress = json.load(f)
        start, done = progress["epoch"], progress["updates"]

    for epoch in range(start, args.epochs):
        model.train()
        skip = done * args.accum - epoch * len(loader) if epoch == start else 0
        batches = accelerator.skip_first_batches(loader, skip) if skip > 0 else loader
        for batch in batches:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                sched.step()
                done += 1
                if done % 20 == 0:
                    accelerator.print(f"epoch {epoch} update {done}/{total} loss {loss.item():.4f}")
                if done % args.save_steps == 0:
                    path = os.path.join(args.out, f"step_{done}")
                    accelerator.save_state(path)
                    if accelerator.is_main_process:
                        with open(os.path.join(path, "progress.json"), "w") as f:
                            json.dump({"epoch": epoch, "updates": done}, f)
        model.eval()
        losses = []
        with torch.no_grad():
            for batch in val:
                losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(len(batch["input_ids"]))))
        accelerator.print(f"epoch {epoch} val ppl {math.exp(torch.cat(losses).mean().item()):.2f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
