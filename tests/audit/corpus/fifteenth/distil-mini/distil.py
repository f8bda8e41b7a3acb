import json
import os

import fire
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

TEACHER = "Qwen/Qwen2.5-3B-Instruct"
STUDENT = "Qwen/Qwen2.5-0.5B-Instruct"


def load_models(device):
    teacher = AutoModelForCausalLM.from_pretrained(TEACHER, torch_dtype=torch.bfloat16)
    teacher.eval()
    student = AutoModelForCausalLM.from_pretrained(STUDENT, torch_dtype=torch.float32).to(device)
    student.config.use_cache = False
    student.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    student.train()
    return teacher, student


def make_rows(path, tokenizer, max_len):
    rows = []
    with open(path) as f:
        for line in f:
            messages = json.loads(line)["messages"]
            rows.append(tokenizer.apply_chat_template(messages, tokenize=True)[:max_len])
    return rows


def main(data="chats.jsonl", out="student", epochs=1, batch_size=1, accum=1, lr=1e-5, temp=2.0, max_len=1024):
    torch.manual_seed(0)
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(STUDENT)
    teacher, student = load_models(device)
    rows = make_rows(data, tokenizer, max_len)

    def collate(batch):
        enc = tokenizer.pad({"input_ids": batch}, return_tensors="pt")
        return enc["input_ids"], enc["attention_mask"]

    loader = DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=collate, pin_memory=True)
    opt = torch.optim.AdamW(student.parameters(), lr=lr, fused=True)
    total = epochs * len(loader) // accum
    sched = get_linear_schedule_with_warmup(opt, total // 20, total)

    for epoch in range(epochs):
        for i, (ids, mask) in enumerate(loader):
            with torch.no_grad():
                t_logits = teacher(input_ids=ids.to(teacher.device), attention_mask=mask.to(teacher.device)).logits
            ids, mask = ids.to(device), mask.to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                s_logits = student(input_ids=ids, attention_mask=mask).logits
            t_prob = F.softmax(t_logits.to(device).float() / temp, dim=-1)
            s_logp = F.log_softmax(s_logits.float() / temp, dim=-1)
            kl = F.kl_div(s_logp, t_prob, reduction="none").sum(-1)
            loss = (kl * mask).sum() / mask.sum() * temp**2
            (loss / accum).backward()
            if (i + 1) % accum == 0:
                torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            if i % 50 == 0:
                print(epoch, i, loss.item())
        student.save_pretrained(os.path.join(out, f"epoch{epoch}"))
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    fire.Fire(main)
