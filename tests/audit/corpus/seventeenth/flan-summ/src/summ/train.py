import argparse
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, get_linear_schedule_with_warmup

from summ.config import load_config
from summ.data import build_loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    cfg = load_config(parser.parse_args().config)

    accelerator = Accelerator(
        mixed_precision=cfg.mixed_precision, gradient_accumulation_steps=cfg.grad_accum
    )
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model_name)
    model = AutoModelForSeq2SeqLM.from_pretrained(cfg.model_name)
    with accelerator.main_process_first():
        loader = build_loader(cfg, tokenizer, model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    total = math.ceil(len(loader) / cfg.grad_accum) * cfg.epochs
    scheduler = get_linear_schedule_with_warmup(
        optimizer, cfg.warmup_steps * accelerator.num_processes, total
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    updates = 0
    for epoch in range(cfg.epochs):
        model.train()
        running, seen = 0.0, 0
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    updates += 1
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            running += loss.item()
            seen += 1
            if accelerator.sync_gradients and updates % 100 == 0:
                accelerator.print(f"epoch {epoch} update {updates} loss {running / seen:.4f}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        os.makedirs(cfg.output_dir, exist_ok=True)
        state = accelerator.unwrap_model(model).state_dict()
        torch.save(state, os.path.join(cfg.output_dir, "pytorch_model.bin"))
        model_config = accelerator.unwrap_model(model).config
        model_config.save_pretrained(cfg.output_dir)
        tokenizer.save_pretrained(cfg.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main()
