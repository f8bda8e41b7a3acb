import functools
import os
import sys

import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from data import LengthBatches, collate, load_rows


def main():
    cfg = OmegaConf.merge(OmegaConf.load("conf/base.yaml"), OmegaConf.from_cli(sys.argv[1:]))
    set_seed(cfg.seed)
    os.makedirs(cfg.out, exist_ok=True)
    state_file = os.path.join(cfg.out, "state.pt")
    resume = os.path.exists(state_file)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    source = os.path.join(cfg.out, "last") if resume else cfg.model
    model = AutoModelForCausalLM.from_pretrained(source, torch_dtype=torch.float32, attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    rows = load_rows(cfg.data, tokenizer, cfg.max_len)
    batches = LengthBatches([len(x) for x in rows["input_ids"]], cfg.batch_size, cfg.seed)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    loader = DataLoader(rows, batch_sampler=batches, collate_fn=functools.partial(collate, pad_id=pad_id),
                        num_workers=4, prefetch_factor=4, pin_memory=True)

    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, fused=True)
    per_epoch = len(batches) // cfg.accum
    sched = get_cosine_schedule_with_warmup(opt, cfg.warmup, per_epoch * cfg.epochs)
    step = 0
    if resume:
        saved = torch.load(state_file, map_location="cpu", weights_only=True)
        opt.load_state_dict(saved["opt"])
        sched.load_state_dict(saved["sched"])
        step = saved["step"]

    running = torch.zeros((), device="cuda")
    for epoch in range(step // per_epoch, cfg.epochs):
        batches.epoch = epoch
        batches.skip = (step - epoch * per_epoch) * cfg.accum
        stream = iter(loader)
        for _ in range(step - epoch * per_epoch, per_epoch):
            group = [next(stream) for _ in range(cfg.accum)]
            targets = sum(int((b["labels"][:, 1:] != -100).sum()) for b in group)
            for b in group:
                b = {k: v.cuda(non_blocking=True) for k, v in b.items()}
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(**b, num_items_in_batch=targets).loss
                loss.backward()
                running += loss.detach()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % cfg.log_every == 0:
                print(f"step {step} loss {running.item() / cfg.log_every:.4f}", flush=True)
                running.zero_()
            if step % cfg.save_every == 0:
                model.save_pretrained(os.path.join(cfg.out, "last"), safe_serialization=True)
                torch.save({"opt": opt.state_dict(), "sched": sched.state_dict(), "step": step}, state_file)

    model.save_pretrained(os.path.join(cfg.out, "final"), safe_serialization=True)
    tokenizer.save_pretrained(os.path.join(cfg.out, "final"))


if __name__ == "__main__":
    main()
