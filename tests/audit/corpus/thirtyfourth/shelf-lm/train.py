import time

import hydra
import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from data import Products, collate


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    torch.manual_seed(cfg.seed)
    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    data = Products(cfg.data.path, tok, cfg.data.max_len)
    loader = DataLoader(
        data,
        batch_size=cfg.train.batch_size,
        shuffle=True,
        collate_fn=collate,
        num_workers=cfg.data.workers,
        pin_memory=True,
        persistent_workers=True,
        drop_last=True,
    )

    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    model = model.to(device="cuda", dtype=torch.bfloat16)
    model.train()
    raw = model
    if cfg.model.compile:
        model = torch.compile(model, dynamic=False)

    accum = cfg.train.get("accumulate", 1)
    opt = torch.optim.AdamW(
        raw.parameters(),
        lr=cfg.optimizer.lr,
        betas=(0.9, 0.95),
        weight_decay=cfg.optimizer.weight_decay,
        fused=True,
    )
    updates = cfg.train.epochs * (len(loader) // accum)
    sched = get_cosine_schedule_with_warmup(opt, cfg.optimizer.warmup, updates)

    done, tokens = 0, 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    for epoch in range(cfg.train.epochs):
        for i, batch in enumerate(loader):
            tokens += int(batch["attention_mask"].sum())
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-100)
            (loss / accum).backward()

            if (i + 1) % accum == 0:
                torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                done += 1
                if done % cfg.train.log_every == 0:
                    torch.cuda.synchronize()
                    now = time.perf_counter()
                    print(f"epoch {epoch} update {done} loss {loss.item():.4f} {tokens / (now - start):.0f} tokens/s")
                    tokens, start = 0, now
        raw.save_pretrained(f"{cfg.out}/epoch{epoch}")
        tok.save_pretrained(f"{cfg.out}/epoch{epoch}")


if __name__ == "__main__":
    main()
