"""How fast does a step go?"""
import time

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype=torch.bfloat16).cuda()
model = torch.compile(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

batches = torch.load("batches.pt", weights_only=True)
t0 = time.perf_counter()
n = 0
for b in batches:
    b = {k: v.cuda(non_blocking=True) for k, v in b.items()}
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(**b).loss
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    n += b["input_ids"].shape[0] * b["input_ids"].shape[1]
print(f"{n / (time.perf_counter() - t0):,.0f} tokens/s")
