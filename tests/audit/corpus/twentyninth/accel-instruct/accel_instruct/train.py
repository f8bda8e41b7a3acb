import math
import os
import sys

import torch
from accelerate import Accelerator
from omegaconf import OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
)

from .data import make_loader
from .loss import token_loss


def load_config():
    base = OmegaConf.load("conf/base.yaml")
    return OmegaConf.merge(base, OmegaConf.from_cli(sys.argv[1:]))


def main():
    cfg = load_config()
    accelerator = Accelerator(gradient_accumulation_steps=cfg.train.grad_accum)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, attn_implementation=cfg.model.attn, torch_dtype=torch.float32
    )
    model.config.use_cache = False

    collator = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8)
    loader = make_loader(
        cfg.data.file, tokenizer, cfg.data.max_len, cfg.train.micro_batch, collator
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.train.lr, fused=True)

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = math.ceil(len(loader) / cfg.train.grad_accum) * cfg.train.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, cfg.train.warmup, updates)
    accelerator.register_for_checkpointing(scheduler)

    start = 0
    state_dir = os.path.join(cfg.train.out, "state")
    marker = os.path.join(state_dir, "epoch.txt")
    if os.path.exists(marker):
        accelerator.load_state(state_dir)
        start = int(open(marker).read()) + 1

    step = 0
    for epoch in range(start, cfg.train.epochs):
        model.train()
        loader.set_epoch(epoch)
        for batch in loader:
            with accelerator.accumulate(model):
                labels = batch.pop("labels")
                logits = model(**batch).logits
                loss = token_loss(logits, labels) / cfg.train.grad_accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), cfg.train.clip)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                if step % cfg.train.log_every == 0:
                    accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        accelerator.save_state(state_dir)
        if accelerator.is_main_process:
            with open(marker, "w") as fh:
                fh.write(str(epoch))
        accelerator.wait_for_everyone()

    accelerator.unwrap_model(model).save_pretrained(
        cfg.train.out,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(cfg.train.out)


if __name__ == "__main__":
    main()
