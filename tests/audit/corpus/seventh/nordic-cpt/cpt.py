"""Continued pretraining of a 7B on Nordic text. accelerate + DeepSpeed."""
import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_wsd_schedule

from packing import PackCollator, PackedRows

ap = argparse.ArgumentParser()
ap.add_argument("config")
ap.add_argument("--lr", type=float)
ap.add_argument("--out")
ap.add_argument("--resume")
opt = ap.parse_args()

with open(opt.config) as fh:
    cfg = json.load(fh)
if opt.lr:
    cfg["lr"] = opt.lr
if opt.out:
    cfg["out"] = opt.out

acc = Accelerator(gradient_accumulation_steps=cfg["accum"])
tok = AutoTokenizer.from_pretrained(cfg["model"])
model = AutoModelForCausalLM.from_pretrained(
    cfg["model"], torch_dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model.gradient_checkpointing_enable({"use_reentrant": False})

# tokenised once by tokenise.sh; rows: {"input_ids": [...]} with EOS at the end
tokenised = load_from_disk(cfg["tokens"])["input_ids"]
rows = PackedRows(tokenised, cfg["width"], acc.process_index, acc.num_processes)
loader = DataLoader(rows, batch_size=cfg["micro_batch"], shuffle=True, drop_last=True,
                    num_workers=2, pin_memory=True,
                    collate_fn=PackCollator(tok.pad_token_id, cfg["width"]))

updates = len(loader) * cfg["epochs"] // cfg["accum"]
params = [p for p in model.parameters() if p.requires_grad]
optim = torch.optim.AdamW(params, lr=cfg["lr"], betas=(0.9, 0.95), weight_decay=0.1, fused=True)
sched = get_wsd_schedule(optim, num_warmup_steps=cfg["warmup"], num_decay_steps=updates // 10,
                         num_stable_steps=updates - cfg["warmup"] - updates // 10)
# the rows are split by rank already, so the loader is not prepared
if acc.state.deepspeed_plugin is not None:
    acc.state.deepspeed_plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = cfg["micro_batch"]
model, optim = acc.prepare(model, optim)

step, skip = 0, 0
if opt.resume:
    _, extra = model.load_checkpoint(opt.resume)
    step = extra["step"]
    sched.load_state_dict(extra["sched"])
    skip = step * cfg["accum"]

acc.print(f"{len(rows)} rows a rank, {updates} updates")
t0, seen, running = time.time(), torch.zeros((), device=acc.device), 0.0
model.train()
micro = 0
for epoch in range(cfg["epochs"]):
    for batch in loader:
        micro += 1
        if micro <= skip:
            continue
        batch = {k: v.to(acc.device, non_blocking=True) for k, v in batch.items()}
        with acc.accumulate(model):
            labels = batch.pop("labels")
            out = model(**batch)
            logits = out.logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
            # z-loss keeps the logits bounded in bf16
            z = torch.logsumexp(logits, -1).pow(2).mean()
            loss = loss + cfg["z_loss"] * z
            acc.backward(loss)
            optim.step()
            optim.zero_grad()
        running += loss.item()
        seen += (labels != -100).sum()
        if not acc.sync_gradients:
            continue
        sched.step()
        step += 1
        if step % 20 == 0:
            real = acc.reduce(seen, "sum").item()
            acc.print(f"step {step}/{updates} loss {running / (20 * cfg['accum']):.4f} "
                      f"{real / (time.time() - t0):,.0f} tokens/s (without padding)")
            running, t0 = 0.0, time.time()
            seen.zero_()
        if step % cfg["save_every"] == 0:
            model.save_checkpoint(cfg["out"], client_state={"step": step, "sched": sched.state_dict()})

acc.wait_for_everyone()
acc.unwrap_model(model).save_pretrained(
    os.path.join(cfg["out"], "hf"), is_main_process=acc.is_main_process,
    state_dict=acc.get_state_dict(model))
