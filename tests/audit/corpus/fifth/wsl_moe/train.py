import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

from model import TinyMoE

CTX, BATCH, STEPS, LR = 512, 32, 20_000, 6e-4


class Windows(Dataset):
    def __init__(self, path="tokens.pt"):
        self.t = torch.load(path).to(torch.int64)

    def __len__(self):
        return (len(self.t) - 1) // CTX

    def __getitem__(self, i):
        c = self.t[i * CTX : i * CTX + CTX + 1]
        return c[:-1], c[1:]


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(
        Windows(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=16,
        prefetch_factor=128,
        persistent_workers=True,
        pin_memory=True,
    )
    model = TinyMoE().cuda()
    # the for-loop version needs a bit less VRAM
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, foreach=False)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, total_steps=STEPS, pct_start=0.05)

    log = open("log.jsonl", "a")
    step, t0 = 0, time.time()
    while step < STEPS:
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x, y)
            loss.backward()
            gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            log.write(json.dumps({"step": step, "loss": loss.item(), "gn": gn.item(), "t": time.time() - t0}) + "\n")
            log.flush()
            if step % 2000 == 0:
                torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, f"ckpt_{step}.pt")
            if step == STEPS:
                break


if __name__ == "__main__":
    main()
