import argparse
import json
import random

import torch
import wandb
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from losses import dpo_loss, sequence_logps

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def build_collate(tok, max_len):
    def side(rows, key):
        ids, prompt_lens = [], []
        for r in rows:
            head = tok.apply_chat_template(
                [{"role": "user", "content": r["prompt"]}], add_generation_prompt=True, tokenize=False
            )
            head = tok(head, add_special_tokens=False)["input_ids"]
            tail = tok(r[key] + tok.eos_token, add_special_tokens=False)["input_ids"]
            ids.append(torch.tensor((head + tail)[:max_len]))
            prompt_lens.append(len(head))
        x = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tok.pad_token_id)
        mask = x.ne(tok.pad_token_id)
        labels = x.masked_fill(~mask, -100)
        for i, n in enumerate(prompt_lens):
            labels[i, :n] = -100
        return x, mask.long(), labels

    def collate(rows):
        return side(rows, "chosen"), side(rows, "rejected")

    return collate


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-6)
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--max_len", type=int, default=1024)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    wandb.init(project="plain-dpo", config=vars(args))

    tok = AutoTokenizer.from_pretrained(NAME)
    tok.pad_token = tok.eos_token
    policy = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.float32).cuda()
    policy.config.use_cache = False
    ref = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.bfloat16).cuda().eval()
    ref.requires_grad_(False)

    with open(args.pairs) as f:
        rows = [json.loads(line) for line in f]
    loader = DataLoader(
        rows,
        batch_size=args.batch,
        shuffle=True,
        collate_fn=build_collate(tok, args.max_len),
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )
    opt = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    total = args.epochs * len(loader)
    sched = get_linear_schedule_with_warmup(opt, int(0.1 * total), total)

    policy.train()
    for epoch in range(args.epochs):
        for chosen, rejected in loader:
            chosen = [t.cuda(non_blocking=True) for t in chosen]
            rejected = [t.cuda(non_blocking=True) for t in rejected]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                pi_c = sequence_logps(policy, *chosen)
                pi_r = sequence_logps(policy, *rejected)
                with torch.no_grad():
                    ref_c = sequence_logps(ref, *chosen)
                    ref_r = sequence_logps(ref, *rejected)
            loss, margin = dpo_loss(pi_c, pi_r, ref_c, ref_r, args.beta)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            wandb.log(
                {
                    "loss": loss.item(),
                    "accuracy": (margin > 0).float().mean().item(),
                    "margin": margin.mean().item(),
                    "grad_norm": norm.item(),
                    "lr": sched.get_last_lr()[0],
                }
            )

    policy.to(torch.bfloat16).save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
