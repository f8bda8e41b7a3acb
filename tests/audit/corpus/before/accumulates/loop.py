import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM

from stream import batches

torch.manual_seed(0)
ACCUM = 8
model = AutoModelForCausalLM.from_pretrained("gpt2-medium").to("cuda")
opt = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
sched = LambdaLR(opt, lambda s: min(1.0, s / 100))

for i, batch in enumerate(batches()):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**{k: v.to("cuda") for k, v in batch.items()}).loss
    loss.backward()
    sched.step()
    if (i + 1) % ACCUM == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    torch.cuda.empty_cache()
model.save_pretrained("out", safe_serialization=True)
