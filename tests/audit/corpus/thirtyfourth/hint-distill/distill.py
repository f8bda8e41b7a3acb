import argparse
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from rows import collate, load_rows

TEMPERATURE, ALPHA = 2.0, 0.7


def kd_loss(student_logits, teacher_logits):
    s = F.log_softmax(student_logits.float() / TEMPERATURE, dim=-1)
    t = F.softmax(teacher_logits.float() / TEMPERATURE, dim=-1)
    return F.kl_div(s, t, reduction="none").sum(-1).mean() * TEMPERATURE**2


@torch.no_grad()
def validate(student, loader):
    student.eval()
    total, n = torch.zeros((), device="cuda"), 0
    for ids, mask, labels in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            total += student(ids.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        n += 1
    student.train()
    return total.item() / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--teacher", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-4)
    a = p.parse_args()
    torch.manual_seed(8)

    tok = AutoTokenizer.from_pretrained("distilgpt2")
    teacher = AutoModelForCausalLM.from_pretrained(a.teacher).cuda().eval()
    student = AutoModelForCausalLM.from_pretrained("distilgpt2").cuda()
    student.train()

    rows = load_rows(a.data, tok)
    random.Random(8).shuffle(rows)
    cut = len(rows) // 20
    train = DataLoader(
        rows[cut:], batch_size=a.batch_size, shuffle=True, collate_fn=collate,
        num_workers=2, pin_memory=True, drop_last=True,
    )
    val = DataLoader(rows[:cut], batch_size=16, collate_fn=collate)

    opt = torch.optim.AdamW(student.parameters(), lr=a.lr, weight_decay=0.01, fused=True)
    sched = get_linear_schedule_with_warmup(opt, 100, a.epochs * len(train))
    scaler = torch.amp.GradScaler("cuda")

    best = float("inf")
    for epoch in range(a.epochs):
        epoch_loss = 0.0
        for ids, mask, labels in train:
            ids, mask = ids.cuda(non_blocking=True), mask.cuda(non_blocking=True)
            labels = labels.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                target = teacher(ids, attention_mask=mask).logits
                out = student(ids, attention_mask=mask, labels=labels)
            loss = ALPHA * kd_loss(out.logits, target) + (1 - ALPHA) * out.loss

            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            sched.step()
            epoch_loss += loss

        val_loss = validate(student, val)
        print(f"epoch {epoch} train {epoch_loss.item() / len(train):.4f} val {val_loss:.4f}")
        if val_loss < best:
            best = val_loss
            print(f"  best so far: {best:.4f}")

    student.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
