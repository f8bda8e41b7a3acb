import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import tyro
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup, set_seed

from dpo.config import DPOCfg
from dpo.data import Collate, Pairs
from dpo.loss import dpo_loss, sequence_logps


def load(name, dtype):
    return AutoModelForCausalLM.from_pretrained(name, torch_dtype=dtype, device_map="auto")


def main(cfg: DPOCfg):
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(cfg.seed)

    tok = AutoTokenizer.from_pretrained(cfg.model)
    pad = tok.pad_token_id if tok.pad_token_id is not None else tok.eos_token_id
    policy = load(cfg.model, torch.float32)
    policy.config.use_cache = False
    policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ref = load(cfg.model, torch.bfloat16).eval().requires_grad_(False)

    data = Pairs(cfg.data, tok, cfg.max_len)
    sampler = DistributedSampler(data, seed=cfg.seed, drop_last=True)
    loader = DataLoader(data, cfg.batch_size, sampler=sampler, collate_fn=Collate(pad), pin_memory=True, drop_last=True)

    model = DDP(policy)
    opt = ZeroRedundancyOptimizer(policy.parameters(), torch.optim.AdamW, lr=cfg.lr, weight_decay=0.0, fused=True)
    sched = get_constant_schedule_with_warmup(opt, 50)
    stats = torch.zeros(2, device=local)
    micro = step = 0
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
            micro += 1
            last = micro % cfg.accum == 0
            with nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    with torch.no_grad():
                        ref_logps = sequence_logps(ref, batch)
                    logps = sequence_logps(model, batch)
                loss, acc = dpo_loss(logps, ref_logps, cfg.beta)
                (loss / cfg.accum).backward()
            stats += torch.stack([loss.detach(), acc]) / cfg.accum
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % cfg.log_every == 0:
                l, a = (stats / cfg.log_every).tolist()
                stats.zero_()
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {step} loss {l:.4f} acc {a:.3f}", flush=True)

    if dist.get_rank() == 0:
        policy.save_pretrained(cfg.out)
        tok.save_pretrained(cfg.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(tyro.cli(DPOCfg))
