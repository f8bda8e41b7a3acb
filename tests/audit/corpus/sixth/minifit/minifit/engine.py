import contextlib
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from .data import make_loader


class Engine:
    """fit() in the manner of Lightning, minus Lightning."""

    def __init__(self, cfg, model):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        self.loader, self.sampler = make_loader(cfg, self.world, self.rank)
        self.accum = cfg.global_batch // (cfg.micro_batch * self.world)
        self.steps_per_epoch = len(self.loader) // (self.accum * self.world)
        self.total_steps = self.steps_per_epoch * cfg.epochs

        self.raw = model.to(self.device)
        self.model = DDP(
            self.raw,
            device_ids=[self.device.index],
            find_unused_parameters=True,
        )
        decay = [p for p in self.raw.parameters() if p.ndim > 1]
        rest = [p for p in self.raw.parameters() if p.ndim <= 1]
        self.opt = torch.optim.AdamW(
            [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": rest, "weight_decay": 0.0}],
            lr=cfg.lr, betas=(0.9, 0.95), fused=True,
        )
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.lr_at)
        self.step = self.epoch = 0

    def lr_at(self, step):
        if step < self.cfg.warmup:
            return (step + 1) / self.cfg.warmup
        t = min(1.0, (step - self.cfg.warmup) / max(1, self.total_steps - self.cfg.warmup))
        return 0.5 * (1 + math.cos(math.pi * t))

    def training_step(self, batch):
        ids, labels = (x.to(self.device, non_blocking=True) for x in batch)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.model(ids, labels) / self.accum

    def fit(self):
        for self.epoch in range(self.epoch, self.cfg.epochs):
            self.sampler.set_epoch(self.epoch)
            self.model.train()
            acc, t0 = torch.zeros((), device=self.device), time.time()
            for i, batch in enumerate(self.loader):
                last = (i + 1) % self.accum == 0
                with contextlib.nullcontext() if last else self.model.no_sync():
                    loss = self.training_step(batch)
                    loss.backward()
                acc += loss.detach()
                if not last:
                    continue
                torch.nn.utils.clip_grad_norm_(self.raw.parameters(), self.cfg.clip)
                self.opt.step()
                self.sched.step()
                self.opt.zero_grad(set_to_none=True)
                self.step += 1
                if self.step % self.cfg.log_every == 0:
                    self.log(acc, time.time() - t0)
                    acc.zero_()
                    t0 = time.time()
            self.opt.zero_grad(set_to_none=True)
            self.save()

    def log(self, acc, dt):
        dist.all_reduce(acc, op=dist.ReduceOp.AVG)
        if self.rank == 0:
            lr = self.sched.get_last_lr()[0]
            print(f"{self.step} loss {acc.item() / self.cfg.log_every:.4f} lr {lr:.2e} {dt:.1f}s", flush=True)

    def save(self):
        if self.rank == 0:
            os.makedirs(self.cfg.out, exist_ok=True)
            torch.save(
                {"model": self.raw.state_dict(), "opt": self.opt.state_dict(), "sched": self.sched.state_dict(),
                 "step": self.step, "epoch": self.epoch + 1},
                f"{self.cfg.out}/last.pt.tmp",
            )
            os.replace(f"{self.cfg.out}/last.pt.tmp", f"{self.cfg.out}/last.pt")
        dist.barrier()

    def maybe_resume(self):
        path = f"{self.cfg.out}/last.pt"
        if not os.path.exists(path):
            return
        st = torch.load(path, map_location="cpu", weights_only=True)
        self.raw.load_state_dict(st["model"])
        self.opt.load_state_dict(st["opt"])
        self.sched.load_state_dict(st["sched"])
        self.step, self.epoch = st["step"], st["epoch"]
