import argparse
import os
import time

import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin, set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup


def param_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    rest = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="config.yaml")
    ap.add_argument("--resume", default=None, help="folder written by save_state, e.g. runs/story/step_4000")
    args = ap.parse_args()
    with open(args.config) as fh:
        cfg = yaml.safe_load(fh)

    # windows of accumulation run on over the end of an epoch
    plugin = GradientAccumulationPlugin(num_steps=cfg["grad_accum"], sync_with_dataloader=False)
    loading = DataLoaderConfiguration(use_seedable_sampler=True, non_blocking=True)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_plugin=plugin, dataloader_config=loading)
    set_seed(cfg["seed"])
    torch.backends.cuda.matmul.allow_tf32 = True

    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(cfg["model_config"]), attn_implementation="sdpa"
    )
    model.to(accelerator.device)
    optimizer = torch.optim.AdamW(
        param_groups(model, cfg["weight_decay"]), lr=cfg["lr"], betas=(0.9, 0.95), fused=True
    )
    loader = DataLoader(
        load_from_disk(cfg["data_dir"]).with_format("torch"),
        batch_size=cfg["micro_batch"],
        shuffle=True,
        drop_last=True,
        num_workers=cfg["num_workers"],
        pin_memory=True,
        persistent_workers=True,
    )
    # the scheduler is not prepared: it is stepped by hand once per update
    scheduler = get_cosine_schedule_with_warmup(optimizer, cfg["warmup_steps"], cfg["total_steps"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(scheduler)

    step, epoch, skip = 0, 0, 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(args.resume.rstrip("/").rsplit("_", 1)[-1])
        epoch, skip = divmod(step * cfg["grad_accum"], len(loader))

    running = torch.zeros((), device=accelerator.device)
    tokens_per_step = cfg["micro_batch"] * cfg["seq_len"] * cfg["grad_accum"] * accelerator.num_processes
    mark = None
    model.train()
    while step < cfg["total_steps"]:
        loader.set_epoch(epoch)
        batches = accelerator.skip_first_batches(loader, skip) if skip else loader
        skip = 0
        for batch in batches:
            with accelerator.accumulate(model):
                loss = model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss
                running += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), cfg["max_grad_norm"])
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if not accelerator.sync_gradients:
                continue
            scheduler.step()
            step += 1
            if step % cfg["log_every"] == 0:
                mean = accelerator.reduce(running, "mean").item() / (cfg["log_every"] * cfg["grad_accum"])
                running.zero_()
                now = time.perf_counter()
                if mark is not None:  # the first window, with its warm-up, is left out
                    rate = cfg["log_every"] * tokens_per_step / (now - mark)
                    accelerator.print(f"step {step} loss {mean:.4f} {rate:,.0f} tok/s")
                mark = now
            if step % cfg["save_every"] == 0:
                accelerator.save_state(os.path.join(cfg["output_dir"], f"step_{step}"))
                mark = None
            if step == cfg["total_steps"]:
                break
        epoch += 1

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        cfg["output_dir"], is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )


if __name__ == "__main__":
    main()
