import os
import random
import sys

import torch
import yaml
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from data import Collate, Mails


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros((), device=device)
    count = torch.zeros((), device=device)
    for batch in loader:
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(**batch).loss
        n = (batch["labels"][:, 1:] != -100).sum()
        total += loss.float() * n
        count += n
    return (total / count).item()


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda")
    os.makedirs(cfg["out_dir"], exist_ok=True)

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.to(device)
    model.train()

    collate = Collate(tokenizer.pad_token_id)
    train = DataLoader(
        Mails(cfg["train_file"], tokenizer, cfg["max_length"]),
        batch_size=cfg["batch_size"],
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=cfg["workers"],
        pin_memory=True,
        persistent_workers=True,
    )
    val = DataLoader(
        Mails(cfg["val_file"], tokenizer, cfg["max_length"]),
        batch_size=cfg["batch_size"] * 2,
        collate_fn=collate,
        num_workers=cfg["workers"],
        pin_memory=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"], fused=True)
    updates = len(train) // cfg["accum"] * cfg["epochs"]
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(updates * cfg["warmup_share"]), updates)
    scaler = torch.amp.GradScaler("cuda")

    step, best = 0, float("inf")
    running = torch.zeros((), device=device)
    for epoch in range(cfg["epochs"]):
        for i, batch in enumerate(train):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss / cfg["accum"]
            scaler.scale(loss).backward()
            running += loss.detach()
            scheduler.step()
            if (i + 1) % cfg["accum"]:
                continue

            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            step += 1

            if step % cfg["log_every"] == 0:
                print(f"epoch {epoch} step {step} loss {running.item() / cfg['log_every']:.4f}", flush=True)
                running.zero_()
            if step % cfg["eval_every"] == 0:
                val_loss = evaluate(model, val, device)
                print(f"step {step} val {val_loss:.4f}", flush=True)
                if val_loss < best:
                    best = val_loss
                    model.save_pretrained(os.path.join(cfg["out_dir"], "best"))
                    tokenizer.save_pretrained(os.path.join(cfg["out_dir"], "best"))

    model.save_pretrained(os.path.join(cfg["out_dir"], "last"))
    tokenizer.save_pretrained(os.path.join(cfg["out_dir"], "last"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "config.yaml")
