import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from data import Collator, Meetings


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--teacher", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--student", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--data", required=True)
    p.add_argument("--output", required=True)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--temperature", type=float, default=2.0)
    p.add_argument("--alpha", type=float, default=0.5)
    return p.parse_args()


def distillation_loss(student_logits, teacher_logits, temperature):
    vocabulary = student_logits.size(-1)
    student = F.log_softmax(student_logits.float() / temperature, dim=-1).view(-1, vocabulary)
    teacher = F.log_softmax(teacher_logits[..., :vocabulary].float() / temperature, dim=-1).view(-1, vocabulary)
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * temperature**2


def main():
    args = parse_args()
    set_seed(29)
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(args.student)
    teacher = AutoModelForCausalLM.from_pretrained(
        args.teacher, dtype=torch.bfloat16, attn_implementation="sdpa"
    ).to(device).eval()
    student = AutoModelForCausalLM.from_pretrained(
        args.student, dtype=torch.float32, attn_implementation="eager"
    ).to(device)
    student.config.use_cache = False

    loader = DataLoader(
        Meetings(args.data, tokenizer),
        args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=Collator(tokenizer.pad_token_id),
        pin_memory=True,
    )
    total = args.epochs * len(loader)
    optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * total), total)

    step = 0
    student.train()
    for epoch in range(args.epochs):
        epoch_loss = 0.0
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
            teacher_logits = teacher(**inputs, use_cache=False).logits
            with torch.autocast("cuda", dtype=torch.bfloat16):
                output = student(**batch)
            soft = distillation_loss(output.logits[:, :-1], teacher_logits[:, :-1], args.temperature)
            loss = args.alpha * output.loss + (1 - args.alpha) * soft
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            epoch_loss += loss
            if step % 20 == 0:
                print(f"step {step}/{total} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} mean loss {epoch_loss.item() / len(loader):.4f}", flush=True)
        student.save_pretrained(args.output)
        tokenizer.save_pretrained(args.output)


if __name__ == "__main__":
    main()
