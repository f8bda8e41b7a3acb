import math
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    get_cosine_schedule_with_warmup,
    set_seed,
)


def make_blocks(path, tok, block, cache):
    cache = Path(cache)
    if cache.exists():
        return torch.load(cache, weights_only=True)
    text = Path(path).read_text(encoding="utf-8")
    poems = [p.strip() + tok.eos_token for p in text.split("\n\n\n")]
    ids = [t for row in tok(poems)["input_ids"] for t in row]
    n = len(ids) // block
    blocks = torch.tensor(ids[: n * block]).view(n, block)
    cache.parent.mkdir(parents=True, exist_ok=True)
    torch.save(blocks, cache)
    return blocks


def lm_loss(model, ids):
    out = model(input_ids=ids)
    logp = torch.log_softmax(out.logits.float(), dim=-1)
    picked = logp[:, :-1].gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return -picked.mean()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.seed)
    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        torch_dtype=torch.bfloat16,
        attn_implementation=cfg.model.attn,
    ).to("cuda")
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(
            r=cfg.model.lora_r,
            lora_alpha=cfg.model.lora_alpha,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.print_trainable_parameters()
    model.train()

    name = cfg.model.name.replace("/", "_")
    blocks = make_blocks(cfg.data.path, tok, cfg.data.block, f"cache/{name}_{cfg.data.block}.pt")
    loader = DataLoader(
        blocks,
        batch_size=cfg.train.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=cfg.data.workers,
        pin_memory=True,
    )

    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=cfg.train.lr, weight_decay=0.0, fused=True)
    updates = math.ceil(len(loader) / cfg.train.accum) * cfg.train.epochs
    sched = get_cosine_schedule_with_warmup(opt, cfg.train.warmup, updates)

    done = 0
    for epoch in range(cfg.train.epochs):
        for i, ids in enumerate(loader):
            ids = ids.to("cuda", non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = lm_loss(model, ids)
            (loss / cfg.train.accum).backward()
            if (i + 1) % cfg.train.accum == 0 or i + 1 == len(loader):
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                done += 1
                if done % cfg.train.log_every == 0:
                    print(f"epoch {epoch} update {done}/{updates} loss {loss.item():.3f}")
        model.save_pretrained(f"{cfg.out}/epoch{epoch}")
    model.save_pretrained(cfg.out)
    tok.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
