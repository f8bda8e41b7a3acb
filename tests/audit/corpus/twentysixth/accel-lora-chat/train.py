import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

cfg = OmegaConf.merge(OmegaConf.load("config.yaml"), OmegaConf.from_cli())
t = cfg.train


def encode(row, tok, max_len):
    # single-turn rows: {"prompt": ..., "answer": ...}
    user = [{"role": "user", "content": row["prompt"]}]
    head = tok.apply_chat_template(user, tokenize=True, add_generation_prompt=True)
    tail = tok(row["answer"].strip(), add_special_tokens=False).input_ids + [tok.eos_token_id]
    ids = (head + tail)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ([-100] * len(head) + tail)[:max_len]}


def newest(out):
    done = [d for d in os.listdir(out) if d.startswith("state_")] if os.path.isdir(out) else []
    return max((int(d.split("_")[1]) for d in done), default=-1)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=t.accum)
    set_seed(t.seed)

    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    tok.pad_token = tok.unk_token
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, torch_dtype=torch.bfloat16, attn_implementation=cfg.model.attn
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **OmegaConf.to_container(cfg.lora)))

    with accelerator.main_process_first():
        raw = load_dataset("json", data_files=t.data, split="train")
        data = raw.map(encode, fn_kwargs={"tok": tok, "max_len": t.max_len}, num_proc=8, remove_columns=raw.column_names)
        data = data.filter(lambda r: r["labels"][-1] != -100, num_proc=8)
    loader = DataLoader(
        data, t.micro_batch, shuffle=True, drop_last=True, num_workers=2, pin_memory=True, persistent_workers=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100, pad_to_multiple_of=8),
    )
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=t.lr, weight_decay=0.0, fused=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)

    # the prepared scheduler advances once per process at every update
    updates = math.ceil(len(loader) / t.accum) * t.epochs
    ranks = accelerator.num_processes
    sched = accelerator.prepare(get_scheduler("cosine", opt, int(t.warmup * updates) * ranks, updates * ranks))

    first = newest(t.out) + 1
    if first:
        accelerator.load_state(os.path.join(t.out, f"state_{first - 1}"))

    update, micro = 0, 0
    total = torch.zeros((), device=accelerator.device)
    model.train()
    for epoch in range(first, t.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            total += loss.detach()
            micro += 1
            if accelerator.sync_gradients:
                update += 1
                if update % t.log_every == 0:
                    mean = accelerator.reduce(total, "mean").item() / micro
                    accelerator.print(f"epoch {epoch} update {update} loss {mean:.4f}")
                    total.zero_()
                    micro = 0
        accelerator.save_state(os.path.join(t.out, f"state_{epoch}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(os.path.join(t.out, "adapter"))
        tok.save_pretrained(os.path.join(t.out, "adapter"))


if __name__ == "__main__":
    main()
