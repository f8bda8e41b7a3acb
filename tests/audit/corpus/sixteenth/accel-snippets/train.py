import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="bigcode/starcoder2-3b")
    p.add_argument("--train_file", default="snippets.jsonl")
    p.add_argument("--out", default="out/snippets")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--grad_accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def main():
    args = parse()
    accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum)
    set_seed(1234)

    tok = AutoTokenizer.from_pretrained(args.model)
    if tok.pad_token is None:
        tok.add_special_tokens({"pad_token": "<pad>"})
    model = AutoModelForCausalLM.from_pretrained(args.model, use_cache=False)
    if len(tok) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tok))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    ds = load_dataset("json", data_files=args.train_file, split="train")

    def collate(rows):
        batch = tok(
            [r["code"] + tok.eos_token for r in rows],
            padding="max_length",
            truncation=True,
            max_length=args.max_len,
            return_tensors="pt",
        )
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return batch

    loader = DataLoader(ds, batch_size=args.batch, shuffle=True, collate_fn=collate, pin_memory=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = args.epochs * -(-len(loader) // args.grad_accum)
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    accelerator.register_for_checkpointing(sched)

    first = 0
    if args.resume:
        accelerator.load_state(args.resume)
        first = int(os.path.basename(args.resume).split("_")[-1]) + 1

    step = 0
    for epoch in range(first, args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                sched.step()
                step += 1
                if step % 20 == 0:
                    accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        accelerator.save_state(os.path.join(args.out, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    final = accelerator.unwrap_model(model)
    final.save_pretrained(args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save)
    if accelerator.is_main_process:
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
