import json
import math
import os

import click
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class ChatLines(Dataset):
    def __init__(self, path, tokenizer, max_len):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.tok = tokenizer
        self.max_len = max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        prompt = self.tok(f"User: {r['user']}\nBot:", add_special_tokens=False)["input_ids"]
        reply = self.tok(" " + r["bot"] + self.tok.eos_token, add_special_tokens=False)["input_ids"]
        ids = (prompt + reply)[: self.max_len]
        labels = ([-100] * len(prompt) + reply)[: self.max_len]
        return {"input_ids": ids, "labels": labels}


def make_collate(pad_id):
    def collate(rows):
        longest = max(len(r["input_ids"]) for r in rows)
        ids, mask, labels = [], [], []
        for r in rows:
            gap = longest - len(r["input_ids"])
            ids.append(r["input_ids"] + [pad_id] * gap)
            mask.append([1] * len(r["input_ids"]) + [0] * gap)
            labels.append(r["labels"] + [-100] * gap)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }
    return collate


@click.command()
@click.option("--model", "model_name", required=True)
@click.option("--train-file", required=True, type=click.Path(exists=True))
@click.option("--out", required=True)
@click.option("--batch", default=8, help="rows per GPU")
@click.option("--accum", default=1)
@click.option("--epochs", default=3)
@click.option("--lr", default=3e-5)
@click.option("--max-len", default=1024)
@click.option("--seed", default=13)
@click.option("--mixed-precision", default="no", type=click.Choice(["no", "fp16", "bf16"]))
def main(model_name, train_file, out, batch, accum, epochs, lr, max_len, seed, mixed_precision):
    accelerator = Accelerator(
        gradient_accumulation_steps=accum,
        mixed_precision=mixed_precision,
    )
    set_seed(seed)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    model = AutoModelForCausalLM.from_pretrained(model_name)

    loader = DataLoader(
        ChatLines(train_file, tokenizer, max_len),
        batch_size=batch,
        shuffle=True,
        collate_fn=make_collate(pad_id),
        pin_memory=True,
        prefetch_factor=4,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    total = math.ceil(len(loader) / accum) * epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    start_epoch = 0
    state_dir = os.path.join(out, "state")
    if os.path.exists(os.path.join(state_dir, "epoch.txt")):
        accelerator.load_state(state_dir)
        start_epoch = int(open(os.path.join(state_dir, "epoch.txt")).read()) + 1

    step = 0
    for epoch in range(start_epoch, epochs):
        model.train()
        for batch_ in loader:
            with accelerator.accumulate(model):
                loss = model(**batch_).loss
                loss = loss / accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            if step % 200 == 0:
                accelerator.print(f"epoch {epoch} step {step} lr {scheduler.get_last_lr()[0]:.2e}")
        accelerator.save_state(state_dir)
        if accelerator.is_main_process:
            with open(os.path.join(state_dir, "epoch.txt"), "w") as f:
                f.write(str(epoch))
        accelerator.wait_for_everyone()

    accelerator.unwrap_model(model).save_pretrained(
        out,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
