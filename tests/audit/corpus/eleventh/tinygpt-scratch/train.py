import os
import time

import numpy as np
import torch

from model import GPT, GPTConfig

# ---- settings -------------------------------------------------------------
out_dir = "out"
data_dir = "data/stories"
batch_size = 16
block_size = 1024
grad_accum = 4
max_iters = 20000
log_interval = 50
ckpt_interval = 2000
learning_rate = 6e-4
min_lr = 6e-5
warmup_iters = 500
weight_decay = 0.1
device = "cuda"
# ---------------------------------------------------------------------------

os.makedirs(out_dir, exist_ok=True)
train_data = np.memmap(os.path.join(data_dir, "train.bin"), dtype=np.uint16, mode="r")


def get_batch():
    ix = torch.randint(len(train_data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(train_data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(train_data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    x = x.pin_memory().to(device, non_blocking=True)
    y = y.pin_memory().to(device, non_blocking=True)
    return x, y


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + np.cos(np.pi * ratio)) * (learning_rate - min_lr)


model = GPT(GPTConfig(block_size=block_size)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=weight_decay)
start_iter = 0
ckpt_path = os.path.join(out_dir, "ckpt.pt")
if os.path.exists(ckpt_path):
    ckpt = torch.load(ckpt_path, map_location=device)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    start_iter = ckpt["iter"]
raw_model = model
model = torch.compile(model)

t0 = time.time()
for it in range(start_iter, max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)

    for micro in range(grad_accum):
        x, y = get_batch()
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits, loss = model(x, y)
        (loss / grad_accum).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    if (it + 1) % log_interval == 0:
        done = it + 1 - start_iter
        tok_s = done * grad_accum * batch_size * block_size / (time.time() - t0)
        print(f"iter {it + 1} loss {loss.item():.4f} {tok_s:,.0f} tok/s")

    if (it + 1) % ckpt_interval == 0:
        torch.save(
            {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter": it + 1},
            ckpt_path,
        )
