"""Full finetune of a 0.5B model, DDP, packed rows through flash-attention's varlen path."""
import argparse
import contextlib
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import yaml
from liger_kernel.transformers import AutoLigerKernelForCausalLM
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoTokenizer, get_cosine_schedule_with_warmup, set_seed


class Packed(Dataset):
    def __init__(self, root):
        load = lambda n: np.load(f"{root}/{n}.npy", mmap_mode="r")
        self.ids, self.labels, self.pos, self.offs = load("ids"), load("labels"), load("pos"), load("offsets")

    def __len__(self):
        return len(self.offs) - 1

    def __getitem__(self, i):
        a, b = int(self.offs[i]), int(self.offs[i + 1])
        t = lambda x: torch.from_numpy(x[a:b].astype(np.int64))
        return {"input_ids": t(self.ids), "labels": t(self.labels), "position_ids": t(self.pos)}


def one_row(batch):
    # one packed row per micro-batch; no attention_mask: position_ids that restart at 0 mark the documents
    return {k: v.unsqueeze(0) for k, v in batch[0].items()}


def save(path, model, tok, opt, sched, epoch, step):
    model.module.save_pretrained(path, safe_serialization=True)
    tok.save_pretrained(path)
    torch.save({"opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch, "step": step}, f"{path}/state.pt")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    ap.add_argument("--resume", help="a checkpoint folder of an earlier run")
    a = ap.parse_args()
    cfg = yaml.safe_load(open(a.config))

    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(cfg["seed"])

    src = a.resume or cfg["model"]
    tok = AutoTokenizer.from_pretrained(cfg["model"])
    # fp32 master weights, bf16 compute by autocast
    model = AutoLigerKernelForCausalLM.from_pretrained(
        src, torch_dtype=torch.float32, attn_implementation="flash_attention_2"
    ).to(local)
    model.config.use_cache = False
    model = DDP(model, device_ids=[local], gradient_as_bucket_view=True)

    ds = Packed(cfg["data"])
    sampler = DistributedSampler(ds, shuffle=True, seed=cfg["seed"], drop_last=True)
    dl = DataLoader(ds, batch_size=1, sampler=sampler, collate_fn=one_row, num_workers=2, pin_memory=True,
                    persistent_workers=True)
    accum = cfg["global_rows"] // world
    assert accum * world == cfg["global_rows"]
    per_epoch = len(dl) // accum
    total = per_epoch * cfg["epochs"]

    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = get_cosine_schedule_with_warmup(opt, int(cfg["warmup"] * total), total)
    first, step = 0, 0
    if a.resume:
        st = torch.load(f"{a.resume}/state.pt", map_location="cpu", weights_only=True)
        opt.load_state_dict(st["opt"]); sched.load_state_dict(st["sched"])
        first, step = st["epoch"] + 1, st["step"]

    for epoch in range(first, cfg["epochs"]):
        sampler.set_epoch(epoch)
        it = iter(dl)
        loss_sum, tokens, t0 = torch.zeros((), device=local), 0, time.time()
        for _ in range(per_epoch):
            micro = [next(it) for _ in range(accum)]
            n = torch.tensor(sum(int((m["labels"][:, 1:] != -100).sum()) for m in micro), device=local)
            dist.all_reduce(n)
            for j, m in enumerate(micro):
                m = {k: v.to(local, non_blocking=True) for k, v in m.items()}
                tokens += m["input_ids"].numel()
                ctx = model.no_sync() if j + 1 < accum else contextlib.nullcontext()
                with ctx:
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = model(**m, num_items_in_batch=n).loss
                    (loss * world).backward()  # DDP takes the mean over ranks
                loss_sum += loss.detach()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step(); sched.step(); opt.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                dist.all_reduce(loss_sum)
                if rank == 0:
                    tps = tokens * world / (time.time() - t0)
                    print(f"step {step}/{total} loss {loss_sum.item() / 20:.4f} {tps:,.0f} tok/s", flush=True)
                loss_sum.zero_(); tokens, t0 = 0, time.time()
        if rank == 0:
            save(f"{cfg['out']}/epoch{epoch}", model, tok, opt, sched, epoch, step)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
