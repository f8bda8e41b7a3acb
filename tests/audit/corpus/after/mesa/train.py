import time
from itertools import chain, repeat
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup, set_seed

from data import Instructions, Pad


def build_model(cfg):
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        dtype=getattr(torch, cfg.model.dtype),
        attn_implementation=cfg.model.attention,
    )
    if cfg.model.activation_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    return model.cuda().train()


def checkpoint(cfg, model, optim, sched, step):
    folder = Path(cfg.out) / f"step-{step}"
    model.save_pretrained(folder)
    torch.save({"optim": optim.state_dict(), "sched": sched.state_dict(), "step": step}, folder / "trainer.pt")


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    print(OmegaConf.to_yaml(cfg))
    set_seed(cfg.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = build_model(cfg)

    data = Instructions(cfg.data.path, tokenizer, cfg.data.max_length)
    loader = DataLoader(
        data,
        batch_size=cfg.train.micro_batch,
        shuffle=True,
        drop_last=True,
        collate_fn=Pad(tokenizer.pad_token_id, cfg.data.max_length),
        num_workers=cfg.data.workers,
        persistent_workers=True,
        pin_memory=True,
    )
    optim = torch.optim.AdamW(
        model.parameters(), lr=cfg.optim.lr, betas=tuple(cfg.optim.betas), weight_decay=cfg.optim.weight_decay, fused=True
    )
    sched = get_constant_schedule_with_warmup(optim, cfg.optim.warmup)

    batches = chain.from_iterable(repeat(loader))
    running = torch.zeros((), device="cuda")
    tokens = 0
    begin = time.time()
    for step in range(1, cfg.train.steps + 1):
        for _ in range(cfg.train.accumulation):
            batch = {k: v.cuda(non_blocking=True) for k, v in next(batches).items()}
            with torch.autocast("cuda", dtype=getattr(torch, cfg.model.autocast)):
                loss = model(**batch).loss
            loss.backward()
            running += loss.detach() / cfg.train.accumulation
            tokens += batch["input_ids"].numel()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.train.clip)
        optim.step()
        sched.step()
        optim.zero_grad(set_to_none=True)
        if step % cfg.train.log_every == 0:
            rate = tokens / (time.time() - begin)
            print(f"step {step} loss {(running / cfg.train.log_every).item():.4f} {rate:.0f} tokens/s")
            running.zero_()
        if step % cfg.train.save_every == 0:
            checkpoint(cfg, model, optim, sched, step)


if __name__ == "__main__":
    main()
