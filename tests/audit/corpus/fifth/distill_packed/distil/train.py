import os
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from distil import settings as S
from distil.pack import collate, load, pack


def kd_loss(s_logits, t_logits, labels):
    keep = labels[:, 1:] != -100
    s = s_logits[:, :-1].float()
    t = t_logits[:, :-1].float()
    kl = F.kl_div((s / S.TEMP).log_softmax(-1), (t / S.TEMP).softmax(-1), reduction="none").sum(-1)
    kl = kl[keep].mean() * S.TEMP**2
    ce = F.cross_entropy(s[keep], labels[:, 1:][keep])
    return S.ALPHA * kl + (1 - S.ALPHA) * ce


def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    rank, world = dist.get_rank(), dist.get_world_size()

    tok = AutoTokenizer.from_pretrained(S.STUDENT)
    student = AutoModelForCausalLM.from_pretrained(S.STUDENT, dtype=torch.float32, attn_implementation="sdpa").to(local)
    student.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    student.train()
    teacher = AutoModelForCausalLM.from_pretrained(S.TEACHER, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    teacher.requires_grad_(False)

    rows = pack(load(tok))
    sampler = DistributedSampler(rows, world, rank, shuffle=True, seed=S.SEED)
    loader = DataLoader(
        rows, batch_size=S.ROWS_PER_GPU, sampler=sampler, num_workers=2,
        collate_fn=partial(collate, pad_id=tok.pad_token_id), pin_memory=True,
    )
    model = DDP(student, device_ids=[local])
    opt = torch.optim.AdamW(model.parameters(), lr=S.LR, weight_decay=0.01, fused=True)
    total = max(1, len(loader) // S.ACCUM) * S.EPOCHS
    sched = get_linear_schedule_with_warmup(opt, S.WARMUP, total)

    step = 0
    for epoch in range(S.EPOCHS):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            labels = batch.pop("labels").to(local, non_blocking=True)
            last = (i + 1) % S.ACCUM == 0
            model.require_backward_grad_sync = last
            with torch.no_grad():
                t = teacher(**{k: v.to(teacher.device) for k, v in batch.items()}).logits.to(local)
            with torch.autocast("cuda", torch.bfloat16):
                s = model(**{k: v.to(local, non_blocking=True) for k, v in batch.items()}).logits
            loss = kd_loss(s, t[..., : s.size(-1)], labels)
            (loss / S.ACCUM).backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if rank == 0 and step % 5 == 0:
                    print(epoch, step, f"{loss.item():.4f}", flush=True)
    if rank == 0:
        student.save_pretrained(S.OUT)
        tok.save_pretrained(S.OUT)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
