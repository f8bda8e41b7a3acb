import os

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from safetensors.torch import save_model

from trunk.env import MASTER, PORT, per_rank
from trunk.net import Trunk


class Trainer:
    def __init__(self, cfg, rank, world):
        os.environ.update(MASTER_ADDR=MASTER, MASTER_PORT=PORT)
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", rank=rank, world_size=world)
        torch.manual_seed(cfg.seed)
        self.cfg, self.rank, self.world = cfg, rank, world

        ids = np.load(cfg.data.path)
        n = len(ids) // cfg.data.row * cfg.data.row
        ds = TensorDataset(torch.from_numpy(ids[:n].astype(np.int64)).view(-1, cfg.data.row))
        self.sampler = DistributedSampler(ds, world, rank, shuffle=True, seed=cfg.seed, drop_last=True)
        self.loader = DataLoader(
            ds, batch_size=per_rank(cfg.train.global_batch), sampler=self.sampler, pin_memory=True, drop_last=True
        )

        net = Trunk(**cfg.model).cuda()
        if cfg.train.compile:
            net = torch.compile(net)
        self.net = DistributedDataParallel(net, device_ids=[rank], find_unused_parameters=True)
        params = [p for p in self.net.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(params, lr=cfg.train.lr, betas=(0.9, 0.98), fused=True)
        w = cfg.train.warmup
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min((s + 1) / w, (w / (s + 1)) ** 0.5))

    def fit(self):
        step = 0
        for epoch in range(self.cfg.train.epochs):
            self.sampler.set_epoch(epoch)
            for (ids,) in self.loader:
                loss = self.net(ids.cuda(non_blocking=True))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.opt.step()
                self.sched.step()
                self.opt.zero_grad(set_to_none=True)
                step += 1
                if step % self.cfg.train.log_every == 0 and self.rank == 0:
                    print(f"{epoch} {step} {loss.item():.4f}", flush=True)
                if step % self.cfg.train.ckpt_every == 0 and self.rank == 0:
                    save_model(self.net.module, f"step{step}.safetensors")
        dist.destroy_process_group()
