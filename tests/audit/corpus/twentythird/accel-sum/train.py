import os

import fire
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, PartialState
from accelerate.utils import set_seed
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, get_linear_schedule_with_warmup

from corpus import build_loader


def main(
    model_name="google/flan-t5-base",
    data_dir="data",
    out="runs/sum",
    lr=3e-4,
    epochs=3,
    batch=8,
    accum=4,
    precision="no",
    seed=13,
):
    world = PartialState().num_processes
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(
        mixed_precision=precision,
        gradient_accumulation_steps=accum // world,
        kwargs_handlers=[ddp],
    )
    set_seed(seed)
    os.makedirs(out, exist_ok=True)

    tok = AutoTokenizer.from_pretrained(model_name)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_name).to(accelerator.device)
    loader = build_loader(accelerator, tok, model, data_dir, batch)
    opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)

    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = epochs * len(loader) // accelerator.gradient_accumulation_steps
    sched = get_linear_schedule_with_warmup(opt, total // 20, total)
    sched = accelerator.prepare(sched)

    for epoch in range(epochs):
        model.train()
        for step, rows in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**rows).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            state = accelerator.unwrap_model(model).state_dict()
            torch.save(state, f"{out}/model_{epoch}.pt")


if __name__ == "__main__":
    fire.Fire(main)
