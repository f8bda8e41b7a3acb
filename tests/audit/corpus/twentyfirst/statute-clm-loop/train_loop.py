import math
import random
import time
from dataclasses import dataclass

import fire
import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from statutes import StatuteDataset, make_collate


@dataclass
class Settings:
    model: str = "HuggingFaceTB/SmolLM2-360M"
    data: str = "statutes.jsonl"
    out: str = "out/statute-360m"
    epochs: int = 3
    batch: int = 8
    accum: int = 4
    lr: float = 3e-5
    max_len: int = 2048
    log_every: int = 25
    seed: int = 7


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main(**overrides):
    cfg = Settings(**overrides)
    seed_all(cfg.seed)
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(cfg.model)
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(cfg.model, attn_implementation="sdpa").to(device)
    model.config.use_cache = False
    model.train()

    ds = StatuteDataset(cfg.data)
    loader = DataLoader(ds, batch_size=cfg.batch, shuffle=True, drop_last=True,
                        collate_fn=make_collate(tok, cfg.max_len))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.1)
    total_updates = math.ceil(len(loader) / cfg.accum) * cfg.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total_updates), total_updates)

    update, tokens, mark = 0, 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        for i, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / cfg.accum).backward()
            tokens += batch["input_ids"].numel()
            if (i + 1) % cfg.accum == 0 or i + 1 == len(loader):
                clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                update += 1
                if update % cfg.log_every == 0:
                    dt = time.perf_counter() - mark
                    print(f"epoch {epoch} update {update} loss {loss.item():.4f} tok/s {tokens / dt:.0f}")
                    tokens, mark = 0, time.perf_counter()
        model.save_pretrained(f"{cfg.out}/epoch{epoch}")
        tok.save_pretrained(f"{cfg.out}/epoch{epoch}")


if __name__ == "__main__":
    fire.Fire(main)
