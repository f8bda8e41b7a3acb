import contextlib
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM

BASE = "Qwen/Qwen2.5-0.5B"
WORLD = int(os.environ.get("WORLD_SIZE", 1))
PEAK_FLOPS = 1979e12
SKIP = 20


class Blocks(Dataset):
    def __init__(self, path):
        self.ids = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return torch.from_numpy(self.ids[i].astype(np.int64))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.accum = args.global_batch // (args.micro * WORLD)

        data = Blocks(args.blocks)
        self.sampler = DistributedSampler(data, shuffle=True, drop_last=True)
        self.loader = DataLoader(
            data, batch_size=args.micro, sampler=self.sampler, num_workers=2,
            pin_memory=True, drop_last=True, persistent_workers=True,
        )
        model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa").cuda()
        model.config.use_cache = False
        model.train()
        self.n_params = sum(p.numel() for p in model.parameters())
        self.model = DDP(model, device_ids=[self.rank], gradient_as_bucket_view=True)
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, foreach=False
        )
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1.0, (s + 1) / 40) * max(0.0, 1 - s / args.updates)
        )

    def stream(self):
        epoch = 0
        while True:
            self.sampler.set_epoch(epoch)
            yield from self.loader
            epoch += 1

    def update(self, batches):
        total = torch.zeros((), device="cuda")
        for k in range(self.accum):
            ids = next(batches).cuda(non_blocking=True)
            last = k == self.accum - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = self.model(input_ids=ids, labels=ids).loss / self.accum
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        return total

    def fit(self):
        batches, times, losses = self.stream(), [], []
        self.opt.zero_grad(set_to_none=True)
        for n in range(self.args.updates):
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            loss = self.update(batches)
            torch.cuda.synchronize()
            if n >= SKIP:
                times.append(time.perf_counter() - t0)
            losses.append(loss)

        if self.rank == 0:
            step_s = min(times)
            tokens = self.accum * self.args.micro * 1024
            result = {
                "name": self.args.name,
                "micro": self.args.micro,
                "it_per_s": self.accum / step_s,
                "tokens_per_s_gpu": tokens / step_s,
                "mfu": 6 * self.n_params * tokens / step_s / PEAK_FLOPS,
                "final_loss": torch.stack(losses[-20:]).mean().item(),
            }
            os.makedirs("results", exist_ok=True)
            with open(f"results/{self.args.name}.json", "w") as f:
                json.dump(result, f, indent=1)
            self.model.module.save_pretrained(f"runs/{self.args.name}")
