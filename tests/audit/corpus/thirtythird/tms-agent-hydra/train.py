import json
import os

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def build_model(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.name, torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    lora = LoraConfig(
        r=cfg.lora.r,
        lora_alpha=cfg.lora.alpha,
        lora_dropout=cfg.lora.dropout,
        target_modules=list(cfg.lora.targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    if cfg.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.print_trainable_parameters()
    return model.cuda()


def encode(path, tokenizer, max_length):
    """Dispatcher dialogues: the loss is on the agent's turns."""
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            ids, labels = [], []
            for turn in json.loads(line)["turns"]:
                piece = tokenizer(f"{turn['who']}: {turn['text']}\n")["input_ids"]
                agent = turn["who"] == "agent"
                if agent:
                    piece = piece + [tokenizer.eos_token_id]
                ids += piece
                labels += piece if agent else [-100] * len(piece)
            if len(ids) <= max_length and any(t != -100 for t in labels):
                rows.append((ids, labels))
    return rows


def collator(pad_id):
    def collate(rows):
        width = max(len(ids) for ids, _ in rows)
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for ids, labels in rows:
            fill = width - len(ids)
            out["input_ids"].append(ids + [pad_id] * fill)
            out["attention_mask"].append([1] * len(ids) + [0] * fill)
            out["labels"].append(labels + [-100] * fill)
        return {k: torch.tensor(v) for k, v in out.items()}

    return collate


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    print(OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    rows = encode(cfg.data.train, tokenizer, cfg.data.max_length)
    loader = DataLoader(rows, batch_size=cfg.data.batch_size, shuffle=True, drop_last=True,
                        collate_fn=collator(tokenizer.pad_token_id),
                        num_workers=cfg.data.num_workers, pin_memory=True)

    peft_model = build_model(cfg.model)
    model = torch.compile(peft_model, dynamic=False) if cfg.model.compile else peft_model

    weights = [p for p in peft_model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=cfg.optim.get("learning_rate", 1e-5),
                                  betas=tuple(cfg.optim.betas), weight_decay=cfg.optim.weight_decay, fused=True)
    updates = len(loader) // cfg.train.accum * cfg.train.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, cfg.optim.warmup, updates)

    model.train()
    step, total_loss = 0, 0.0
    for epoch in range(cfg.train.epochs):
        for i, batch in enumerate(loader):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            (loss / cfg.train.accum).backward()
            total_loss += loss
            if (i + 1) % cfg.train.accum:
                continue
            torch.nn.utils.clip_grad_norm_(weights, cfg.train.clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % cfg.train.log_every == 0:
                done = epoch * len(loader) + i + 1
                print(f"{step}/{updates} loss {float(total_loss) / done:.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)

    out = os.path.join(HydraConfig.get().runtime.output_dir, "adapter")
    peft_model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
