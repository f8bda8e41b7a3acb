import argparse
import csv
import json
import os
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from losses import IGNORE, ce_loss, kd_loss

TEACHER = "Qwen/Qwen2.5-3B-Instruct"
STUDENT = "Qwen/Qwen2.5-0.5B"


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--eval-data", default="data/heldout.jsonl")
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--max-len", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--alpha", type=float, default=0.5)
    p.add_argument("--T", type=float, default=2.0)
    return p.parse_args()


def load_rows(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class Collate:
    def __init__(self, tok, max_len):
        self.tok, self.max_len = tok, max_len

    def __call__(self, rows):
        texts = []
        for r in rows:
            msgs = [{"role": "user", "content": r["prompt"]}, {"role": "assistant", "content": r["response"]}]
            texts.append(self.tok.apply_chat_template(msgs, tokenize=False))
        batch = self.tok(texts, padding=True, truncation=True, max_length=self.max_len,
                         add_special_tokens=False, return_tensors="pt")
        # loss on everything, as in the handout (prompt included)
        batch["labels"] = batch["input_ids"].clone()
        return batch


@torch.no_grad()
def evaluate(student, loader, device):
    student.eval()
    total, n = 0.0, 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = student(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        total += ce_loss(logits, batch["labels"]).item()
        n += 1
    student.train()
    return total / max(n, 1)


def main():
    args = get_args()
    os.makedirs(args.out, exist_ok=True)
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(TEACHER)
    tok.padding_side = "right"

    student = AutoModelForCausalLM.from_pretrained(STUDENT, torch_dtype=torch.float32).to(device)
    # both did not fit with the first version of my losses, so only the student goes to the card
    teacher = AutoModelForCausalLM.from_pretrained(TEACHER, torch_dtype=torch.bfloat16)
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad_(False)

    collate = Collate(tok, args.max_len)
    train = DataLoader(load_rows(args.data), batch_size=args.batch_size, shuffle=True,
                       num_workers=4, collate_fn=collate, drop_last=True)
    held = DataLoader(load_rows(args.eval_data), batch_size=args.batch_size, collate_fn=collate)

    opt = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = args.epochs * len(train)
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    log = csv.writer(open(os.path.join(args.out, "log.csv"), "w"))
    log.writerow(["step", "loss", "ce", "kd", "gnorm", "sec"])
    step = 0
    start = time.time()
    for epoch in range(args.epochs):
        for batch in train:
            ids, mask = batch["input_ids"], batch["attention_mask"]
            with torch.no_grad():
                t_logits = teacher(input_ids=ids, attention_mask=mask).logits
            ids, mask, labels = ids.to(device), mask.to(device), batch["labels"].to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                s_logits = student(input_ids=ids, attention_mask=mask).logits
            ce = ce_loss(s_logits, labels)
            kd = kd_loss(s_logits, t_logits.to(device), labels, args.T)
            loss = (1 - args.alpha) * ce + args.alpha * kd

            loss.backward()
            gnorm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            log.writerow([step, loss.item(), ce.item(), kd.item(), gnorm.item(), time.time() - start])
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f}")
        print("held-out CE", evaluate(student, held, device))

    student.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
