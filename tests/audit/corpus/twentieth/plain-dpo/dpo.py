import fire
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from pairs import PairCollate, read_pairs


def sequence_logps(model, batch):
    out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    labels = batch["labels"][:, 1:]
    logps = out.logits[:, :-1].float().log_softmax(-1)
    picked = logps.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked * (labels != -100)).sum(-1)


def main(
    model_name="Qwen/Qwen2.5-1.5B-Instruct",
    pairs="pairs.jsonl",
    out="dpo-out",
    batch_size=2,
    grad_accum=16,
    lr=5e-7,
    beta=0.1,
    max_len=1024,
    warmup=50,
    log_every=10,
):
    device = torch.device("cuda")
    tok = AutoTokenizer.from_pretrained(model_name)
    policy = AutoModelForCausalLM.from_pretrained(model_name, attn_implementation="sdpa").to(device)
    policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy.config.use_cache = False
    policy.train()

    ref = AutoModelForCausalLM.from_pretrained(model_name, attn_implementation="sdpa")
    ref.eval().requires_grad_(False)

    loader = DataLoader(
        read_pairs(pairs),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=PairCollate(tok, max_len),
        pin_memory=True,
    )
    opt = torch.optim.AdamW(policy.parameters(), lr=lr, weight_decay=0.0, fused=True)
    updates = len(loader) // grad_accum
    sched = get_linear_schedule_with_warmup(opt, warmup, updates)

    window = torch.zeros((), device=device)
    for i, batch in enumerate(loader, 1):
        if i > updates * grad_accum:
            break
        gpu = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.no_grad():
            ref_logps = sequence_logps(ref, batch).to(device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logps = sequence_logps(policy, gpu)
        good, bad = (logps - ref_logps).chunk(2)
        loss = -F.logsigmoid(beta * (good - bad)).mean()
        (loss / grad_accum).backward()
        window += loss.detach() / grad_accum
        torch.cuda.empty_cache()

        if i % grad_accum == 0:
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            n = i // grad_accum
            if n % log_every == 0:
                print(f"update {n}/{updates} loss {window.item() / log_every:.4f}")
                window.zero_()

    policy.save_pretrained(out)
    tok.save_pretrained(out)


if __name__ == "__main__":
    fire.Fire(main)
