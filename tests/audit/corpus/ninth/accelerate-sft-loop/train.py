import argparse
import json
import math
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class ReplyDataset(Dataset):
    """Everything is tokenized once and kept in memory; a few thousand short rows."""

    def __init__(self, path, tokenizer, max_length):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                prompt = tokenizer(f"Question: {row['question']}\nAnswer:")["input_ids"]
                reply = tokenizer(" " + row["answer"], add_special_tokens=False)["input_ids"]
                reply.append(tokenizer.eos_token_id)
                ids = (prompt + reply)[:max_length]
                labels = ([-100] * len(prompt) + reply)[:max_length]
                self.rows.append((torch.tensor(ids), torch.tensor(labels)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def make_collate(pad_token_id):
    def collate(rows):
        ids, labels = zip(*rows)
        lengths = torch.tensor([len(x) for x in ids])
        input_ids = pad_sequence(ids, batch_first=True, padding_value=pad_token_id)
        attention_mask = (torch.arange(input_ids.size(1))[None, :] < lengths[:, None]).long()
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }

    return collate


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.2-1B")
    p.add_argument("--train_file", default="data/train.jsonl")
    p.add_argument("--output_dir", default="out")
    p.add_argument("--max_length", type=int, default=1024)
    p.add_argument("--global_batch_size", type=int, default=64)
    p.add_argument("--micro_batch_size", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--log_every", type=int, default=10)
    p.add_argument("--save_every", type=int, default=200)
    p.add_argument("--resume", default=None, help="folder of a saved state")
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def main():
    args = parse_args()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    grad_accum = args.global_batch_size // (args.micro_batch_size * world_size)
    assert grad_accum * args.micro_batch_size * world_size == args.global_batch_size

    # precision comes from accelerate_config.yaml
    accelerator = Accelerator(gradient_accumulation_steps=grad_accum)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")

    dataset = ReplyDataset(args.train_file, tokenizer, args.max_length)
    loader = DataLoader(
        dataset,
        batch_size=args.micro_batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=make_collate(tokenizer.pad_token_id),
        num_workers=0,
        pin_memory=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    steps_per_epoch = math.ceil(len(loader) / grad_accum)
    total_steps = steps_per_epoch * args.epochs
    # not prepared: stepped by hand once per optimizer step
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total_steps), total_steps)
    accelerator.register_for_checkpointing(scheduler)

    step = 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(args.resume.rstrip("/").split("-")[-1])

    model.train()
    loss_sum = torch.zeros((), device=accelerator.device)
    tokens = torch.zeros((), dtype=torch.long, device=accelerator.device)
    micro, t0 = 0, None
    for epoch in range(step // steps_per_epoch, args.epochs):
        loader.set_epoch(epoch)
        skip = (step % steps_per_epoch) * grad_accum if epoch == step // steps_per_epoch else 0
        for batch in accelerator.skip_first_batches(loader, skip):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            loss_sum += loss.detach()
            tokens += batch["attention_mask"].sum()
            micro += 1
            if not accelerator.sync_gradients:
                continue
            scheduler.step()
            step += 1
            if step % args.log_every == 0:
                total = accelerator.reduce(tokens, reduction="sum").item()
                mean_loss = accelerator.reduce(loss_sum / micro, reduction="mean").item()
                now = time.perf_counter()
                # the first interval is warm-up and is not reported
                speed = f"{total / (now - t0):.0f}" if t0 is not None else "-"
                accelerator.print(f"step {step}/{total_steps} loss {mean_loss:.4f} tokens/s {speed}")
                loss_sum.zero_()
                tokens.zero_()
                micro, t0 = 0, now
            if step % args.save_every == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step-{step}"))

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
