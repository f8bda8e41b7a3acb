"""Reads gas meters: CRNN with CTC on 64x256 grey crops. Desktop project (WSL2, RTX 3060)."""
import configparser
import csv
import math
import pathlib
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from torchvision.io import ImageReadMode, read_image

DIGITS = "0123456789,"
BLANK = 0


class Crops:
    """All the crops in one uint8 tensor ON the GPU: 41k x 64 x 256 bytes = 0.67 GB.

    That is why there is no DataLoader here. Workers under WSL only cost start-up,
    and pinned memory is scarce there; after loading nothing is copied any more.
    """

    def __init__(self, folder, table, device):
        rows = list(csv.DictReader(open(table, encoding="utf-8")))
        cache = pathlib.Path(table).with_suffix(".npy")
        if cache.exists() and cache.stat().st_mtime > pathlib.Path(table).stat().st_mtime:
            imgs = torch.from_numpy(np.load(cache))
        else:
            imgs = torch.stack([
                F.interpolate(read_image(f"{folder}/{r['file']}", ImageReadMode.GRAY)[None].float(),
                              (64, 256), mode="bilinear", antialias=True)[0].round().byte()
                for r in rows])
            np.save(cache, imgs.numpy())
        self.x = imgs.to(device)
        ids = [[DIGITS.index(c) + 1 for c in r["text"]] for r in rows]
        width = max(map(len, ids))                       # 7 to 9 digits: nearly no padding
        self.y = torch.tensor([i + [BLANK] * (width - len(i)) for i in ids], device=device)
        self.n = torch.tensor([len(i) for i in ids])      # lengths stay on the CPU, ctc_loss wants them there
        self.text = [r["text"] for r in rows]

    def __len__(self):
        return len(self.x)

    def batches(self, size, gen):
        order = torch.randperm(len(self), generator=gen)
        there = order.to(self.x.device)
        for i in range(0, len(order) - size + 1, size):
            k = there[i:i + size]
            yield self.x[k], self.y[k], self.n[order[i:i + size]]


def augment(x):
    """On the GPU, whole batch at once."""
    b = x.shape[0]
    x = x.float() / 255
    a = (torch.rand(b, device=x.device) - 0.5) * 0.12
    s = 1 + (torch.rand(b, device=x.device) - 0.5) * 0.1
    th = torch.zeros(b, 2, 3, device=x.device)
    th[:, 0, 0], th[:, 0, 1] = s * a.cos(), -a.sin() * 0.25
    th[:, 1, 0], th[:, 1, 1] = a.sin() * 4 * 0.25, s * a.cos()
    x = F.grid_sample(x, F.affine_grid(th, x.shape, align_corners=False), align_corners=False,
                      padding_mode="border")
    return (x * (0.7 + 0.6 * torch.rand(b, 1, 1, 1, device=x.device))).clamp(0, 1)


class CRNN(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        def block(i, o, pool):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True), nn.MaxPool2d(pool))
        self.cnn = nn.Sequential(block(1, 32, 2), block(32, 64, 2), block(64, 128, (2, 1)),
                                 block(128, 256, (2, 1)), block(256, width, (4, 1)))
        self.rnn = nn.LSTM(width, width // 2, 2, bidirectional=True, batch_first=True, dropout=0.2)
        self.out = nn.Linear(width, len(DIGITS) + 1)

    def forward(self, x):
        h = self.cnn(x).squeeze(2).transpose(1, 2)
        return self.out(self.rnn(h)[0])


def decode(logits):
    out = []
    for seq in logits.argmax(-1).tolist():
        s, last = "", BLANK
        for k in seq:
            if k != last and k != BLANK:
                s += DIGITS[k - 1]
            last = k
        out.append(s)
    return out


@torch.no_grad()
def accuracy(model, data, size=512):
    model.eval()
    hit = 0
    for i in range(0, len(data), size):
        got = decode(model(data.x[i:i + size].float() / 255))
        hit += sum(a == b for a, b in zip(got, data.text[i:i + size]))
    model.train()
    return hit / len(data)


def main(path):
    ini = configparser.ConfigParser()
    ini.read(path)
    c = ini["train"]
    seed = c.getint("seed")
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True

    train = Crops(c["folder"], c["train"], device)
    dev = Crops(c["folder"], c["dev"], device)
    model = CRNN().to(device)
    # float32 throughout: CTC needs it, and the LSTM of this size gains nothing from bf16
    opt = torch.optim.AdamW(model.parameters(), lr=c.getfloat("lr"), weight_decay=1e-2, fused=True)
    per_epoch = len(train) // c.getint("batch")
    total = per_epoch * c.getint("epochs")
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, c.getfloat("lr"), total_steps=total)
    best, step = 0.0, 0
    for epoch in range(c.getint("epochs")):
        t0 = time.perf_counter()
        total_loss = torch.zeros((), device=device)
        for x, y, n in train.batches(c.getint("batch"), gen):
            logp = model(augment(x)).log_softmax(-1).transpose(0, 1)
            frames = torch.full((x.shape[0],), logp.shape[0])
            loss = F.ctc_loss(logp, y, frames, n, blank=BLANK, zero_infinity=True)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            total_loss += loss.detach()
            step += 1
        mean = total_loss.item() / per_epoch
        seconds = time.perf_counter() - t0
        acc = accuracy(model, dev)
        print(f"{epoch:3d}  loss {mean:.4f}  dev {acc:.4f}  {per_epoch * c.getint('batch') / seconds:,.0f} crops/s", flush=True)
        if not math.isfinite(mean):
            sys.exit("diverged")
        if acc > best:
            best = acc
            save_file(model.state_dict(), c["out"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "meter.ini")
