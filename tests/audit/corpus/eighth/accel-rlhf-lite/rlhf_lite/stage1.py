"""Stage 1: SFT on the best of N."""
import argparse
import math
import os

import torch
import wandb
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_lite.data import make_loader


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    ap.add_argument("--ids", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--warmup", type=float, default=0.03)
    ap.add_argument("--resume", default=None, help="folder written by save_state")
    ap.add_argument("--seed", type=int, default=5)
    return ap.parse_args()


def cosine(warm: int, total: int):
    def f(s: int) -> float:
        if s < warm:
            return s / max(1, warm)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (s - warm) / max(1, total - warm))))
    return f


def save(accelerator: Accelerator, model, tokenizer, folder: str) -> None:
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return
    os.makedirs(folder, exist_ok=True)
    m = accelerator.unwrap_model(model)
    torch.save(m.state_dict(), os.path.join(folder, "pytorch_model.bin"))
    m.config.save_pretrained(folder)
    m.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main():
    args = parse()
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    set_seed(args.seed)
    if accelerator.is_main_process:
        wandb.init(project="rlhf-lite", config=vars(args))

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    # master weights in fp32
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    loader = make_loader(args.ids, tokenizer.pad_token_id, args.batch_size)

    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), foreach=False,
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    per_epoch = len(loader) // args.accum
    total = per_epoch * args.epochs
    # not prepared: one step for each update
    sched = torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, cosine(int(args.warmup * total), total))
    accelerator.register_for_checkpointing(sched)

    update, first_epoch = 0, 0
    if args.resume:
        accelerator.load_state(args.resume)
        first_epoch = int(args.resume.rstrip("/").rsplit("-", 1)[1]) + 1
        update = first_epoch * per_epoch

    for epoch in range(first_epoch, args.epochs):
        for i, batch in enumerate(loader):
            if i >= per_epoch * args.accum:
                break
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if accelerator.sync_gradients:
                    sched.step()
                    update += 1
            mean_loss = accelerator.gather(loss.detach()).mean().item()
            if accelerator.is_main_process:
                wandb.log({"loss": mean_loss, "lr": sched.get_last_lr()[0], "epoch": epoch}, step=epoch * len(loader) + i)
                if accelerator.sync_gradients and update % 20 == 0:
                    print(f"[{epoch}] {update}/{total} {mean_loss:.4f}", flush=True)
        accelerator.save_state(f"{args.out}/state-{epoch}")
        save(accelerator, model, tokenizer, f"{args.out}/epoch-{epoch}")

    accelerator.end_training()


if __name__ == "__main__":
    main()
