"""Distils a large sentence encoder into a 6-layer one (MSE on cosine matrices + InfoNCE).

accelerate launch --num_processes 1 --mixed_precision bf16 distil.py --config distil.json
"""
import argparse
import json
import math
import pathlib
import time
from types import SimpleNamespace

import torch
import torch.nn.functional as F
import wandb
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModel, AutoTokenizer, get_cosine_schedule_with_warmup


class PairText(Dataset):
    """query / passage pairs, held in memory as Python strings"""

    def __init__(self, path):
        self.rows = []
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            self.rows.append((r["query"], r["passage"]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collate:
    def __init__(self, student_tok, teacher_tok, qlen, plen):
        self.s, self.t, self.qlen, self.plen = student_tok, teacher_tok, qlen, plen

    def __call__(self, rows):
        q, p = [r[0] for r in rows], [r[1] for r in rows]
        kw = dict(padding=True, truncation=True, return_tensors="pt")
        return {
            "sq": self.s(q, max_length=self.qlen, **kw), "sp": self.s(p, max_length=self.plen, **kw),
            "tq": self.t(q, max_length=self.qlen, **kw), "tp": self.t(p, max_length=self.plen, **kw),
        }


def embed(model, enc):
    out = model(**enc).last_hidden_state
    m = enc["attention_mask"].unsqueeze(-1).to(out.dtype)
    return F.normalize((out * m).sum(1) / m.sum(1).clamp(min=1), dim=-1)


def student_from(name, layers):
    m = AutoModel.from_pretrained(name, add_pooling_layer=False)
    step = len(m.encoder.layer) // layers
    m.encoder.layer = torch.nn.ModuleList(list(m.encoder.layer)[step - 1::step][:layers])
    m.config.num_hidden_layers = layers
    return m


def evaluate(accelerator, model, tok, path, c):
    rows = [json.loads(l) for l in open(path, encoding="utf-8")]
    model.eval()
    with torch.no_grad():
        def run(texts, n):
            parts = []
            for i in range(0, len(texts), 256):
                e = tok(texts[i:i + 256], padding=True, truncation=True, max_length=n, return_tensors="pt")
                parts.append(embed(model, e.to(accelerator.device)).float())
            return torch.cat(parts)
        q, p = run([r["query"] for r in rows], c.query_len), run([r["passage"] for r in rows], c.passage_len)
        rank = (q @ p.T).argsort(dim=1, descending=True)
        hit = (rank[:, :10] == torch.arange(len(rows), device=rank.device)[:, None]).any(1).float().mean()
    model.train()
    return hit.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", required=True)
    ap.add_argument("--resume")
    a = ap.parse_args()
    c = SimpleNamespace(**json.loads(pathlib.Path(a.config).read_text()))

    accelerator = Accelerator()
    set_seed(c.seed)
    if accelerator.is_main_process:
        wandb.init(project="tiny-retriever", config=vars(c))

    stok, ttok = AutoTokenizer.from_pretrained(c.student), AutoTokenizer.from_pretrained(c.teacher)
    student = student_from(c.student, c.student_layers)
    if c.gradient_checkpointing:
        student.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    teacher = AutoModel.from_pretrained(c.teacher, torch_dtype=torch.bfloat16)
    teacher.eval().requires_grad_(False)

    loader = DataLoader(
        PairText(c.train), batch_size=c.batch_size, shuffle=True, drop_last=True,
        collate_fn=Collate(stok, ttok, c.query_len, c.passage_len),
        num_workers=c.num_workers, pin_memory=True, persistent_workers=True, prefetch_factor=4,
    )
    opt = torch.optim.AdamW(student.parameters(), lr=c.lr, weight_decay=0.01, fused=True)
    student, opt, loader = accelerator.prepare(student, opt, loader)
    total = len(loader) * c.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    accelerator.register_for_checkpointing(sched)

    step = 0
    if a.resume:
        accelerator.load_state(a.resume)
        step = int(pathlib.Path(a.resume).name.split("-")[1])

    tokens, clock = 0, time.perf_counter()
    for epoch in range(step // len(loader), c.epochs):
        done = step % len(loader)
        stream = accelerator.skip_first_batches(loader, done) if done else loader
        for b in stream:
            with torch.no_grad():
                tq = embed(teacher, b["tq"].to(teacher.device))
                tp = embed(teacher, b["tp"].to(teacher.device))
                target = (tq @ tp.T).float().to(accelerator.device)
            with accelerator.autocast():
                sq, sp = embed(student, b["sq"]), embed(student, b["sp"])
            sim = sq.float() @ sp.float().T
            mse = F.mse_loss(sim, target)
            nce = F.cross_entropy(sim / c.tau, torch.arange(len(sim), device=sim.device))
            loss = mse * c.mse_weight + nce
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(student.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1

            tokens += b["sq"]["input_ids"].numel() + b["sp"]["input_ids"].numel()
            wandb.log({"loss": loss.item(), "mse": mse.item(), "nce": nce.item(), "norm": norm.item(),
                       "lr": sched.get_last_lr()[0]}, step=step)

            if step == 100:           # leave the warm-up out
                tokens, clock = 0, time.perf_counter()
            elif step % 200 == 0:
                rate = tokens / (time.perf_counter() - clock)
                print(f"{step}/{total} ({math.floor(100 * step / total)} %)  student text tokens/s {rate:,.0f}")
            if step % c.save_every == 0:
                accelerator.save_state(f"{c.out}/step-{step}")
        hit = evaluate(accelerator, student, stok, c.dev, c)
        print(f"epoch {epoch}: hit@10 {hit:.4f}")
        wandb.log({"hit10": hit}, step=step)

    accelerator.unwrap_model(student).save_pretrained(c.out)
    stok.save_pretrained(c.out)


if __name__ == "__main__":
    main()
