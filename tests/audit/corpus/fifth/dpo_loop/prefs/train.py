import argparse
import math
import os

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from prefs.data import Pairs, make_collate
from prefs.losses import dpo_loss, sequence_logps


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--pairs", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--global_batch", type=int, default=64, help="pairs per update, over all GPUs")
    p.add_argument("--micro_batch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--lr", type=float, default=5e-7)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"], default="no")
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def main():
    a = parse()
    set_seed(a.seed)
    accum = max(1, a.global_batch // a.micro_batch)
    acc = Accelerator(mixed_precision=a.mixed_precision, gradient_accumulation_steps=accum)

    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model)
    ref = AutoModelForCausalLM.from_pretrained(a.model).to(acc.device)
    ref.eval()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    ds = Pairs(a.pairs, tok)
    loader = DataLoader(
        ds, batch_size=a.micro_batch, shuffle=True, collate_fn=make_collate(tok.pad_token_id),
        num_workers=2, pin_memory=True, drop_last=True,
    )
    opt = AdamW(model.parameters(), lr=a.lr, weight_decay=0.0, fused=True)
    total = math.ceil(len(loader) / accum) * a.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.1 * total), total)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    hist = {"loss": [], "acc": [], "margin": []}
    step = 0
    for epoch in range(a.epochs):
        model.train()
        for batch in loader:
            labels = batch.pop("labels")
            with acc.accumulate(model):
                pol = sequence_logps(model(**batch).logits, labels)
                ref_lp = sequence_logps(ref(**batch).logits, labels)
                loss, hit, margin = dpo_loss(pol, ref_lp, a.beta)
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            hist["loss"].append(acc.gather(loss.detach()).mean().item())
            hist["acc"].append(acc.gather(hit).mean().item())
            hist["margin"].append(acc.gather(margin).mean().item())
            if acc.sync_gradients:
                step += 1
                if step % 20 == 0:
                    m = {k: sum(v) / len(v) for k, v in hist.items()}
                    acc.print(f"epoch {epoch} step {step} " + " ".join(f"{k}={x:.4f}" for k, x in m.items()))
                    hist = {k: [] for k in hist}
        acc.save_state(os.path.join(a.out, f"epoch{epoch}"))

    acc.wait_for_everyone()
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(os.path.join(a.out, "final"))
        tok.save_pretrained(os.path.join(a.out, "final"))


if __name__ == "__main__":
    main()
