"""DPO over fixed preference pairs: accelerate launch -m prefopt.train ..."""
import copy
import math
import os
import time
from collections import defaultdict

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from .args import parse
from .data import PairCollator, load_pairs
from .losses import dpo, sequence_logps


def save(accelerator, model, tokenizer, path):
    accelerator.wait_for_everyone()
    plain = accelerator.unwrap_model(model)
    plain.save_pretrained(path, is_main_process=accelerator.is_main_process,
                          save_function=accelerator.save,
                          state_dict=accelerator.get_state_dict(model))
    if accelerator.is_main_process:
        tokenizer.save_pretrained(path)


def main():
    args = parse()
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype=torch.float32)
    for m in model.modules():                      # no dropout: policy == reference at step 0
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    if args.gradient_checkpointing:
        model.config.use_cache = False
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    with accelerator.main_process_first():
        pairs = load_pairs(args.dataset_path, tokenizer, args.max_seq_length)
    batch_size = max(1, args.per_device_train_batch_size // accelerator.num_processes)
    loader = DataLoader(pairs, batch_size=batch_size, shuffle=True, drop_last=True,
                        collate_fn=PairCollator(tokenizer.pad_token_id),
                        num_workers=2, pin_memory=True)

    decay, plain = [], []
    for name, p in model.named_parameters():
        (plain if p.ndim < 2 or "norm" in name else decay).append(p)
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": args.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=args.learning_rate, fused=True)

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    reference.to(accelerator.device)

    per_epoch = math.ceil(len(loader) / args.gradient_accumulation_steps)
    total = per_epoch * args.num_train_epochs
    scheduler = get_scheduler("linear", optimizer, int(args.warmup_ratio * total), total)
    accelerator.register_for_checkpointing(scheduler)

    step, first_epoch, skip = 0, 0, 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        step = int(os.path.basename(args.resume_from).split("_")[-1])
        first_epoch, within = divmod(step, per_epoch)
        skip = within * args.gradient_accumulation_steps

    sums, count, t0 = defaultdict(float), 0, time.time()
    model.train()
    for epoch in range(first_epoch, args.num_train_epochs):
        stream = loader
        if skip:
            stream, skip = accelerator.skip_first_batches(loader, skip), 0
        for batch in stream:
            with accelerator.accumulate(model):
                policy_logps = sequence_logps(model, batch)
                with torch.no_grad():
                    ref_logps = sequence_logps(reference, batch)
                loss, good, bad = dpo(policy_logps, ref_logps, args.beta)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()

            sums["loss"] += loss.item()
            sums["reward_chosen"] += good.mean().item()
            sums["reward_rejected"] += bad.mean().item()
            sums["accuracy"] += (good > bad).float().mean().item()
            count += 1

            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.logging_steps == 0:
                mean = {k: v / count for k, v in sums.items()}
                accelerator.print(f"epoch {epoch} step {step}/{total} "
                                  + " ".join(f"{k} {v:.4f}" for k, v in mean.items())
                                  + f" {time.time() - t0:.0f}s")
                sums, count = defaultdict(float), 0
            if step % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{step}"))

    save(accelerator, model, tokenizer, args.output_dir)


if __name__ == "__main__":
    main()
