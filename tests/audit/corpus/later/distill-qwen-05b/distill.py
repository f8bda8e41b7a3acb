#!/usr/bin/env python
"""Logit distillation: Qwen2.5-7B-Instruct -> Qwen2.5-0.5B, one H100."""

import argparse
import math
import pathlib

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from data import Chats, Collate

ap = argparse.ArgumentParser()
ap.add_argument("--teacher", default="Qwen/Qwen2.5-7B-Instruct")
ap.add_argument("--student", default="Qwen/Qwen2.5-0.5B")
ap.add_argument("--train", default="data/chats.jsonl")
ap.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/student"))
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--accum", type=int, default=4)
ap.add_argument("--epochs", type=int, default=2)
ap.add_argument("--lr", type=float, default=4e-5)
ap.add_argument("--max-len", type=int, default=1024)
ap.add_argument("--temperature", type=float, default=2.0)
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()

torch.manual_seed(args.seed)
torch.set_float32_matmul_precision("high")
device = torch.device("cuda")

tok = AutoTokenizer.from_pretrained(args.teacher)
tok.padding_side = "right"

teacher = AutoModelForCausalLM.from_pretrained(args.teacher, dtype=torch.bfloat16).to(device)
teacher.eval()

# master weights of the student stay in fp32, the forward runs under autocast
student = AutoModelForCausalLM.from_pretrained(args.student, dtype=torch.float32).to(device)
student.train()
student.config.use_cache = False
fast_student = torch.compile(student, dynamic=False)

loader = DataLoader(
    Chats(args.train),
    batch_size=args.batch,
    shuffle=True,
    drop_last=True,
    collate_fn=Collate(tok, args.max_len),
    num_workers=6,
    pin_memory=True,
    persistent_workers=True,
)

optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
total = math.ceil(len(loader) / args.accum) * args.epochs
schedule = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

# the 7B pads its embedding to 152064 rows, the 0.5B to 151936; the extra rows belong to no token
vocab = student.config.vocab_size


def kd_loss(s_logits, t_logits, mask):
    t = args.temperature
    s = F.log_softmax(s_logits / t, dim=-1)
    p = F.softmax(t_logits / t, dim=-1)
    kl = F.kl_div(s, p, reduction="none").sum(-1)
    return (kl * mask).sum() / mask.sum() * t * t


running = 0.0
for epoch in range(args.epochs):
    bar = tqdm(loader, desc=f"epoch {epoch}")
    for i, batch in enumerate(bar):
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        mask = batch["attention_mask"][:, 1:].float()
        with torch.autocast("cuda", dtype=torch.float16):
            t_logits = teacher(**batch, use_cache=False).logits[:, :-1, :vocab]
            s_logits = fast_student(**batch).logits[:, :-1]
        loss = kd_loss(s_logits.float(), t_logits.float(), mask)
        (loss / args.accum).backward()

        running = 0.98 * running + 0.02 * loss.item()
        bar.set_postfix(kl=f"{running:.4f}")
        torch.cuda.empty_cache()

        if (i + 1) % args.accum == 0 or i + 1 == len(loader):
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)

    student.save_pretrained(args.out / f"epoch{epoch}")
    tok.save_pretrained(args.out / f"epoch{epoch}")
