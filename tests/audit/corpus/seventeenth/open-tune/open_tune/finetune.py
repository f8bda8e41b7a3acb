import math
import os
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, get_scheduler

from open_tune.arguments import ModelArguments, TrainArguments
from open_tune.data import Collator, load_encoded


def main():
    margs, args = HfArgumentParser((ModelArguments, TrainArguments)).parse_args_into_dataclasses()
    accelerator = Accelerator()
    accum = max(1, args.gradient_accumulation_steps // accelerator.num_processes)
    accelerator.gradient_accumulation_steps = accum
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(
        margs.model_name_or_path, trust_remote_code=margs.trust_remote_code
    )
    pad_id = tokenizer.pad_token_id
    if pad_id is None:
        pad_id = tokenizer.eos_token_id
    model = AutoModelForCausalLM.from_pretrained(
        margs.model_name_or_path,
        torch_dtype=torch.bfloat16,
        trust_remote_code=margs.trust_remote_code,
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model,
        LoraConfig(
            r=margs.lora_rank,
            lora_alpha=margs.lora_alpha,
            lora_dropout=margs.lora_dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )

    with accelerator.main_process_first():
        data = load_encoded(args, tokenizer)
    loader = DataLoader(
        data,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        collate_fn=Collator(pad_id),
        num_workers=2,
        pin_memory=True,
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.learning_rate, weight_decay=0.0, fused=True)
    total = math.ceil(len(loader) / accum) * args.num_train_epochs
    scheduler = get_scheduler("linear", optimizer, int(args.warmup_ratio * total), total)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step, first_epoch, skip = 0, 0, 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        step = int(args.resume_from.rstrip("/").split("_")[-1])
        per_epoch = math.ceil(len(loader) / accum)
        first_epoch, skip = step // per_epoch, (step % per_epoch) * accum

    tokens, mark = 0, time.perf_counter()
    total_loss = torch.zeros((), device=accelerator.device)
    for epoch in range(first_epoch, args.num_train_epochs):
        model.train()
        batches = accelerator.skip_first_batches(loader, skip) if skip else loader
        skip = 0
        for batch in batches:
            with accelerator.accumulate(model):
                labels = batch.pop("labels")
                tokens += batch["input_ids"].numel()
                logits = model(**batch, use_cache=False).logits.float()
                loss = F.cross_entropy(
                    logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100
                )
                total_loss += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(trainable, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.logging_steps == 0:
                mean = accelerator.gather(total_loss).mean().item() / (args.logging_steps * accum)
                rate = tokens * accelerator.num_processes / (time.perf_counter() - mark)
                accelerator.print(f"step {step} loss {mean:.4f} tokens/s {rate:.0f}")
                total_loss.zero_()
                tokens, mark = 0, time.perf_counter()
            if step % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{step}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main()
