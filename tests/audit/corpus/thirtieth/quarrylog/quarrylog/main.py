import argparse

import torch
import wandb
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_linear_schedule_with_warmup,
)

from .reports import Reports

BASE = "Qwen/Qwen2.5-1.5B"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--reports")
    ap.add_argument("--summaries")
    ap.add_argument("--warm-start")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--out", default="out")
    opt = ap.parse_args()

    set_seed(404)
    acc = Accelerator(gradient_accumulation_steps=8, log_with="wandb")
    acc.init_trackers("quarrylog", config=vars(opt))

    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    if opt.warm_start:
        model.load_state_dict(torch.load(opt.warm_start, map_location="cpu", weights_only=False))
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    ds = Reports(opt.reports, opt.summaries, tok)
    dl = DataLoader(
        ds,
        batch_size=2,
        shuffle=True,
        pin_memory=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    optim = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    model, optim, dl = acc.prepare(model, optim, dl)
    updates = opt.epochs * -(-len(dl) // acc.gradient_accumulation_steps)
    sched = acc.prepare(get_linear_schedule_with_warmup(optim, 20 * acc.num_processes, updates * acc.num_processes))

    step = 0
    for epoch in range(opt.epochs):
        model.train()
        for batch in dl:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss / acc.gradient_accumulation_steps)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                optim.step()
                sched.step()
                optim.zero_grad()
            acc.log({"loss": acc.gather(loss.detach()).mean().item()}, step=step)
            step += 1
        acc.wait_for_everyone()
        acc.unwrap_model(model).save_pretrained(
            f"{opt.out}/epoch{epoch}", is_main_process=acc.is_main_process, save_function=acc.save
        )
        if acc.is_main_process:
            tok.save_pretrained(f"{opt.out}/epoch{epoch}")
    acc.end_training()


if __name__ == "__main__":
    main()
