import json
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

CFG = json.loads(Path("config.json").read_text())
random.seed(CFG["seed"])
np.random.seed(CFG["seed"])
torch.manual_seed(CFG["seed"])
torch.set_float32_matmul_precision("high")
DEVICE = "cuda"
T, B = CFG["block_size"], CFG["batch_size"]

# A flat array of moves (games are parted by id 0); 360 MB as int32, so all of it lies on the GPU.
tokens = torch.from_numpy(np.fromfile("games.bin", dtype=np.uint16).astype(np.int32)).to(DEVICE)
gen = torch.Generator(device=DEVICE).manual_seed(CFG["seed"])
offsets = torch.arange(T, device=DEVICE)


def get_batch():
    start = torch.randint(0, tokens.numel() - T, (B, 1), generator=gen, device=DEVICE)
    return tokens[start + offsets].long()


model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=CFG["vocab_size"], n_positions=T, n_layer=12, n_head=12, n_embd=768,
        bos_token_id=0, eos_token_id=0, use_cache=False, attn_implementation="sdpa",
    )
).to(DEVICE)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
    lr=CFG["lr"], betas=(0.9, 0.95), fused=True,
)


def lr_factor(step):
    if step < CFG["warmup_steps"]:
        return (step + 1) / CFG["warmup_steps"]
    x = (step - CFG["warmup_steps"]) / (CFG["steps"] - CFG["warmup_steps"])
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(x, 1.0)))


sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
first, ckpt = 0, Path(CFG["out"]) / "last.pt"
ckpt.parent.mkdir(parents=True, exist_ok=True)
if ckpt.exists():
    state = torch.load(ckpt, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    sched.load_state_dict(state["sched"])
    gen.set_state(state["gen"])
    first = state["step"]

run = torch.compile(model)
model.train()
running = torch.zeros((), device=DEVICE)
mark, mark_step = None, 0
for step in range(first, CFG["steps"]):
    x = get_batch()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = run(input_ids=x, labels=x).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
    running += loss.detach()

    done = step + 1
    if done % 100 == 0:
        mean = running.item() / min(100, done - first)
        now = time.perf_counter()
        rate = "" if mark is None else f"{(done - mark_step) * B * T / (now - mark):,.0f} tok/s"
        print(f"{done:6d} loss {mean:.4f} lr {sched.get_last_lr()[0]:.2e} {rate}", flush=True)
        running.zero_()
        mark, mark_step = now, done
    if done % 2000 == 0 or done == CFG["steps"]:
        torch.save(
            {
                "model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                "gen": gen.get_state(), "step": done,
            },
            ckpt,
        )
        mark = None

weights = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
save_file(weights, ckpt.with_name("model.safetensors"), metadata={"format": "pt"})
