"""DPO without a trainer, LoRA on Llama-3.1-8B-Instruct, one H100."""
import argparse
import os
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from data import PrefDataset, make_collate
from losses import dpo_loss, sequence_logps

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/prefs.jsonl")
    p.add_argument("--out", default="out/dpo")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=8)
    p.add_argument("--lr", type=float, default=5e-6)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--max_prompt", type=int, default=1024)
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def load(name):
    return AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, attn_implementation="sdpa").cuda()


def main():
    args = get_args()
    set_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)

    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"

    policy = load(MODEL)
    policy.config.use_cache = False
    policy = get_peft_model(policy, LoraConfig(r=64, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"))
    policy.base_model.model.gradient_checkpointing_enable({"use_reentrant": False})
    ref = load(MODEL).eval().requires_grad_(False)

    ds = PrefDataset(args.data, tok, args.max_prompt, args.max_len)
    dl = DataLoader(ds, batch_size=args.bs, shuffle=True, collate_fn=make_collate(tok.pad_token_id),
                    pin_memory=True, drop_last=True)

    params = [p for p in policy.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.0, fused=True)
    total = len(dl) // args.accum * args.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.1 * total), total)

    policy.train()
    seen, t0 = 0, time.time()
    for epoch in range(args.epochs):
        bar = tqdm(dl, desc=f"epoch {epoch}")
        for i, batch in enumerate(bar):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.no_grad():
                ref_logps = sequence_logps(ref, **batch)
            logps = sequence_logps(policy, **batch)
            pi_c, pi_r = logps.chunk(2)
            ref_c, ref_r = ref_logps.chunk(2)
            loss, rw_c, rw_r = dpo_loss(pi_c, pi_r, ref_c, ref_r, args.beta)
            (loss / args.accum).backward()

            acc = (rw_c > rw_r).float().mean()
            bar.set_postfix(loss=loss.item(), acc=acc.item(), margin=(rw_c - rw_r).mean().item())
            torch.cuda.empty_cache()

            if (i + 1) % args.accum == 0:
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                seen += args.accum * args.bs
        print(f"epoch {epoch}: {seen} pairs, {(time.time() - t0) / 3600:.1f} h")
        torch.save(policy.state_dict(), f"{args.out}/policy_epoch{epoch}.pt")

    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
