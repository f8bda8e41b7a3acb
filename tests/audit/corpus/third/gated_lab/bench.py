"""Which batch size should train.py use? Prints one line per candidate and names the winner."""

import time

import torch
import torch.nn.functional as F

from modeling import LabConfig, LabModel

CANDIDATES = [2, 4, 8, 16]
ITERS = 20


def one(batch):
    torch.manual_seed(0)
    cfg = LabConfig()
    model = torch.compile(LabModel(cfg).cuda().train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, cfg.vocab, (batch, cfg.context), device="cuda")

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(ITERS):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return ITERS / (time.perf_counter() - start)


def main():
    speed = {}
    for batch in CANDIDATES:
        torch._dynamo.reset()
        speed[batch] = one(batch)
        print(f"batch {batch:3d}: {speed[batch]:6.2f} it/s")
    best = max(speed, key=speed.get)
    print(f"fastest setting: batch {best} ({speed[best]:.2f} it/s)")


if __name__ == "__main__":
    main()
