import argparse
import os
import time

import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from .batches import Batches


def groups(model, decay):
    two_d = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": two_d, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="config.yaml")
    cfg = OmegaConf.load(p.parse_args().config)
    torch.manual_seed(cfg.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")

    model = AutoModelForCausalLM.from_pretrained(
        cfg.model, torch_dtype=torch.float32, attn_implementation="flash_attention_2"
    ).to(device)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    optimizer = torch.optim.AdamW(
        groups(model, cfg.weight_decay), lr=cfg.lr, betas=(0.9, 0.95), fused=True
    )
    scheduler = get_cosine_schedule_with_warmup(optimizer, cfg.warmup, cfg.steps)
    batches = Batches(cfg.tokens, cfg.ctx, cfg.batch, cfg.seed)

    os.makedirs(cfg.out, exist_ok=True)
    state_file = os.path.join(cfg.out, "state.pt")
    first = 0
    if os.path.exists(state_file):
        state = torch.load(state_file, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first = state["step"]

    total = torch.zeros((), device=device)
    tick = time.perf_counter()
    for step in range(first, cfg.steps):
        for micro in range(cfg.accum):
            ids = batches.get(step * cfg.accum + micro, device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss / cfg.accum
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)

        if (step + 1) % cfg.log_every == 0:
            mean = total.item() / cfg.log_every
            took = time.perf_counter() - tick
            speed = cfg.log_every * cfg.accum * cfg.batch * cfg.ctx / took
            print(f"step {step + 1} loss {mean:.4f} tok/s {speed:,.0f}", flush=True)
            total.zero_()
            tick = time.perf_counter()
        if (step + 1) % cfg.save_every == 0:
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "step": step + 1,
                },
                state_file,
            )
            tick = time.perf_counter()

    model.to(torch.bfloat16).save_pretrained(os.path.join(cfg.out, "model"))
    AutoTokenizer.from_pretrained(cfg.model).save_pretrained(os.path.join(cfg.out, "model"))


if __name__ == "__main__":
    main()
