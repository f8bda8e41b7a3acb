import math

import click
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def build_collate(tok, max_len):
    def collate(rows):
        texts = [f"Question: {r['question']}\nAnswer: {r['answer']}{tok.eos_token}" for r in rows]
        batch = tok(texts, padding="max_length", truncation=True, max_length=max_len, return_tensors="pt")
        batch["labels"] = batch["input_ids"].clone()
        return batch

    return collate


@click.command()
@click.option("--model", default="EleutherAI/pythia-1.4b")
@click.option("--data", default="qa.jsonl")
@click.option("--max-len", default=1024)
@click.option("--batch-size", default=4)
@click.option("--accum", default=8)
@click.option("--lr", default=2e-5)
@click.option("--epochs", default=3)
@click.option("--out", default="out/marten")
@click.option("--seed", default=1)
def main(model, data, max_len, batch_size, accum, lr, epochs, out, seed):
    set_seed(seed)
    acc = Accelerator()
    tok = AutoTokenizer.from_pretrained(model)
    tok.pad_token = tok.eos_token
    net = AutoModelForCausalLM.from_pretrained(model, attn_implementation="sdpa")
    net.config.use_cache = False

    rows = load_dataset("json", data_files=data, split="train")
    loader = DataLoader(
        rows,
        batch_size=batch_size,
        shuffle=True,
        collate_fn=build_collate(tok, max_len),
        num_workers=4,
        pin_memory=True,
        drop_last=True,
    )
    opt = torch.optim.AdamW(net.parameters(), lr=lr, fused=True)
    total = math.ceil(len(loader) / accum) * epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    net, opt, loader, sched = acc.prepare(net, opt, loader, sched)

    net.train()
    done = 0
    for epoch in range(epochs):
        for batch in loader:
            with acc.accumulate(net):
                loss = net(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if acc.sync_gradients:
                done += 1
                if done % 20 == 0:
                    acc.print(f"epoch {epoch} update {done} loss {loss.item():.4f}")

    acc.wait_for_everyone()
    acc.unwrap_model(net).save_pretrained(
        out,
        is_main_process=acc.is_main_process,
        save_function=acc.save,
        safe_serialization=False,
    )
    if acc.is_main_process:
        tok.save_pretrained(out)


if __name__ == "__main__":
    main()
