"""Logit distillation Qwen2.5-7B -> Qwen2.5-0.5B on translated instructions.

Launch with torchrun, one process per GPU (see run.sh)."""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from datasets import load_from_disk
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup, set_seed

IGNORE = -100


def build_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--teacher", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--student", default="Qwen/Qwen2.5-0.5B")
    ap.add_argument("--data", default="data/instr_tok", help="tokenised, with input_ids and labels, at most 1024 long")
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--temp", type=float, default=2.0)
    ap.add_argument("--mix", type=float, default=0.5, help="weight of the KL term")
    ap.add_argument("--state", default="out/state.pt")
    return ap.parse_args()


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad_id)
        lab = torch.full((len(rows), width), IGNORE)
        att = torch.zeros((len(rows), width), dtype=torch.long)
        for i, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[i, :n] = torch.tensor(r["input_ids"])
            lab[i, :n] = torch.tensor(r["labels"])
            att[i, :n] = 1
        return {"input_ids": ids, "attention_mask": att, "labels": lab}


def distill_loss(s_logits, t_logits, labels, temp, mix):
    s = s_logits[:, :-1].float()
    t = t_logits[:, :-1].float()
    y = labels[:, 1:]
    logp = F.log_softmax(s / temp, dim=-1)
    q = F.softmax(t / temp, dim=-1)
    kl = F.kl_div(logp, q, reduction="none").sum(-1)
    mask = (y != IGNORE).float()
    kl = (kl * mask).sum() / mask.sum() * temp**2
    ce = F.cross_entropy(s.flatten(0, 1), y.flatten(), ignore_index=IGNORE)
    return mix * kl + (1 - mix) * ce


def main():
    args = build_args()
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    world = dist.get_world_size()
    torch.cuda.set_device(local)
    set_seed(11)

    tok = AutoTokenizer.from_pretrained(args.teacher)
    teacher = AutoModelForCausalLM.from_pretrained(args.teacher, dtype=torch.bfloat16, device_map="auto").eval()
    teacher.requires_grad_(False)
    student = AutoModelForCausalLM.from_pretrained(args.student, dtype=torch.float32, use_cache=False).to(local)
    student.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    # 7B has a padded vocabulary, compare only what both models share
    vocab = min(teacher.config.vocab_size, student.config.vocab_size)
    ddp = DistributedDataParallel(student, device_ids=[local], find_unused_parameters=True)

    ds = load_from_disk(args.data)
    sampler = DistributedSampler(ds, shuffle=True, seed=11)
    loader = DataLoader(ds, batch_size=args.bs, sampler=sampler, num_workers=4, pin_memory=False,
                        persistent_workers=True, collate_fn=Collate(tok.pad_token_id))
    opt = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    sched = get_constant_schedule_with_warmup(opt, 100)

    begin = 0
    if os.path.exists(args.state):
        st = torch.load(args.state, map_location="cpu", weights_only=True)
        student.load_state_dict(st["student"])
        opt.load_state_dict(st["opt"])
        sched.load_state_dict(st["sched"])
        begin = st["epoch"]

    step, seen, mark = 0, 0, time.time()
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
            labels = batch.pop("labels")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                s_out = ddp(**batch).logits[..., :vocab]
                with torch.no_grad():
                    t_out = teacher(**batch).logits[..., :vocab]
            loss = distill_loss(s_out, t_out, labels, args.temp, args.mix)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            seen += batch["input_ids"].numel() * world
            if step == 20:  # leave the first steps out of the throughput
                torch.cuda.synchronize()
                seen, mark = 0, time.time()
            if step % 100 == 0 and rank == 0:
                torch.cuda.synchronize()
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} "
                      f"trained tokens/s {seen / (time.time() - mark):,.0f}", flush=True)
        if rank == 0:
            os.makedirs(os.path.dirname(args.state), exist_ok=True)
            torch.save({"student": student.state_dict(), "opt": opt.state_dict(),
                        "sched": sched.state_dict(), "epoch": epoch + 1}, args.state)
        dist.barrier()

    if rank == 0:
        student.save_pretrained("out/student")
        tok.save_pretrained("out/student")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
