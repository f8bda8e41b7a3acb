import math
import os
from itertools import chain

import click
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator, get_cosine_schedule_with_warmup


def blocks_of(path, tokenizer, size):
    ds = load_dataset("json", data_files=path, split="train")
    eos = tokenizer.eos_token

    def encode(batch):
        return tokenizer([t + eos for t in batch["text"]], add_special_tokens=False, return_attention_mask=False)

    def group(batch):
        ids = list(chain.from_iterable(batch["input_ids"]))
        ids = ids[: len(ids) // size * size]
        rows = [ids[i : i + size] for i in range(0, len(ids), size)]
        return {"input_ids": rows, "labels": [list(r) for r in rows]}

    ds = ds.map(encode, batched=True, num_proc=8, remove_columns=ds.column_names)
    return ds.map(group, batched=True, num_proc=8).with_format("torch")


@click.command()
@click.option("--model", "model_id", default="HuggingFaceTB/SmolLM2-1.7B")
@click.option("--train-file", required=True, type=click.Path(exists=True))
@click.option("--out", required=True)
@click.option("--block", default=2048, type=int)
@click.option("--batch", default=4, type=int)
@click.option("--accum", default=8, type=int)
@click.option("--epochs", default=2, type=int)
@click.option("--lr", default=2e-5, type=float)
@click.option("--log-every", default=10, type=int)
@click.option("--save-every", default=200, type=int)
@click.option("--resume", default=None)
@click.option("--seed", default=11, type=int)
def main(model_id, train_file, out, block, batch, accum, epochs, lr, log_every, save_every, resume, seed):
    accelerator = Accelerator(
        gradient_accumulation_steps=accum,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    model = AutoModelForCausalLM.from_pretrained(model_id, torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with accelerator.main_process_first():
        data = blocks_of(train_file, tokenizer, block)
    loader = DataLoader(
        data, batch_size=batch, shuffle=True, collate_fn=default_data_collator, num_workers=2, pin_memory=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    total = math.ceil(len(loader) / accum) * epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    update, start_epoch, skip = 0, 0, 0
    if resume:
        accelerator.load_state(resume)
        update = int(resume.rstrip("/").rsplit("-", 1)[-1])
        per_epoch = math.ceil(len(loader) / accum)
        start_epoch, skip = update // per_epoch, (update % per_epoch) * accum

    total_loss = torch.zeros((), device=accelerator.device)
    micro = 0
    for epoch in range(start_epoch, epochs):
        model.train()
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        active = accelerator.skip_first_batches(loader, skip) if skip else loader
        skip = 0
        for rows in active:
            with accelerator.accumulate(model):
                loss = model(**rows).loss
                total_loss += loss.detach()
                micro += 1
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            update += 1
            if update % log_every == 0:
                mean = accelerator.reduce(total_loss / micro, reduction="mean").item()
                accelerator.print(f"epoch {epoch} update {update} loss {mean:.4f}")
                total_loss.zero_()
                micro = 0
            if update % save_every == 0:
                accelerator.save_state(os.path.join(out, f"state-{update}"))

    accelerator.wait_for_everyone()
    final = accelerator.unwrap_model(model)
    if accelerator.is_main_process:
        final.save_pretrained(os.path.join(out, "final"), safe_serialization=True)
        tokenizer.save_pretrained(os.path.join(out, "final"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
