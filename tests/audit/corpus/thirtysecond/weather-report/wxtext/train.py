import math

import click
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from .records import BulletinSet
from .render import collator


@click.command()
@click.option("--folder", required=True)
@click.option("--val-folder", required=True)
@click.option("--model", "name", default="Qwen/Qwen2.5-0.5B")
@click.option("--out", default="ckpt/wx")
@click.option("--bs", default=8)
@click.option("--accum", default=2)
@click.option("--epochs", default=2)
@click.option("--lr", default=1e-5)
@click.option("--max-len", default=1024)
@click.option("--resume", is_flag=True)
def main(folder, val_folder, name, out, bs, accum, epochs, lr, max_len, resume):
    acc = Accelerator(gradient_accumulation_steps=accum, log_with="tensorboard", project_dir=out)
    acc.init_trackers("wx")
    set_seed(2024)

    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    train = DataLoader(BulletinSet(folder, tok, max_len), batch_size=bs, shuffle=True, drop_last=True,
                       collate_fn=collator(tok.pad_token_id), pin_memory=True)
    val = DataLoader(BulletinSet(val_folder, tok, max_len), batch_size=bs, collate_fn=collator(tok.pad_token_id),
                     num_workers=4, pin_memory=True)

    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    updates = epochs * math.ceil(len(train) / accum) // acc.num_processes
    sched = get_scheduler("cosine", opt, num_warmup_steps=updates // 20, num_training_steps=updates)
    model, opt, train, val, sched = acc.prepare(model, opt, train, val, sched)

    step, first = 0, 0
    if resume:
        acc.load_state(f"{out}/state")
        first = torch.load(f"{out}/state/epoch.pt", weights_only=True) + 1
        step = first * len(train)

    for ep in range(first, epochs):
        model.train()
        for batch in train:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            step += 1
            acc.log({"loss": acc.gather(loss.detach()).mean().item(), "lr": sched.get_last_lr()[0]}, step=step)

        model.eval()
        total = torch.zeros((), device=acc.device)
        for batch in val:
            with torch.no_grad():
                total += acc.gather(model(**batch).loss.detach()).mean()
        acc.print(f"epoch {ep}: val {(total / len(val)).item():.4f}")
        acc.save_state(f"{out}/state")
        if acc.is_main_process:
            torch.save(ep, f"{out}/state/epoch.pt")

    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained(out, is_main_process=acc.is_main_process, save_function=acc.save)
    if acc.is_main_process:
        tok.save_pretrained(out)
    acc.end_training()


if __name__ == "__main__":
    main()
