import logging
import math
import os
import time
from dataclasses import dataclass
from typing import Optional

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, get_scheduler

from open_tuner.data import PreferenceCollator, build_preference_dataset
from open_tuner.dpo_utils import concatenated_forward, dpo_loss

logger = logging.getLogger(__name__)


@dataclass
class FlatArguments:
    model_name_or_path: str
    dataset_name: str
    output_dir: str = "output/dpo"
    max_seq_length: int = 2048
    total_batch_size: int = 64
    per_device_train_batch_size: int = 2
    learning_rate: float = 5e-6
    warmup_ratio: float = 0.1
    num_train_epochs: int = 2
    beta: float = 0.1
    use_lora: bool = True
    lora_rank: int = 64
    lora_alpha: int = 128
    gradient_checkpointing: bool = True
    logging_steps: int = 10
    seed: int = 42
    resume_from_checkpoint: Optional[str] = None
    with_tracking: bool = False


def load(name):
    return AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )


def main():
    args = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0]
    grad_accum = args.total_batch_size // args.per_device_train_batch_size
    accelerator = Accelerator(
        gradient_accumulation_steps=grad_accum,
        log_with="wandb" if args.with_tracking else None,
    )
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token

    model = load(args.model_name_or_path)
    if args.use_lora:
        model = get_peft_model(
            model,
            LoraConfig(
                r=args.lora_rank,
                lora_alpha=args.lora_alpha,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
        )
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.config.use_cache = False

    ref_model = load(args.model_name_or_path)
    ref_model.eval().requires_grad_(False)
    ref_model.to(accelerator.device)

    with accelerator.main_process_first():
        dataset = build_preference_dataset(args.dataset_name, tokenizer, args.max_seq_length)
    loader = DataLoader(
        dataset,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        collate_fn=PreferenceCollator(tokenizer.pad_token_id),
        num_workers=2,
        pin_memory=True,
    )

    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=args.learning_rate, weight_decay=0.0, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    total_steps = args.num_train_epochs * math.ceil(len(loader) / grad_accum)
    scheduler = get_scheduler("linear", optimizer, int(args.warmup_ratio * total_steps), total_steps)
    accelerator.register_for_checkpointing(scheduler)

    if args.with_tracking:
        accelerator.init_trackers("open-tuner-dpo", vars(args))
    start_epoch = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        start_epoch = int(args.resume_from_checkpoint.rstrip("/").split("_")[-1]) + 1

    step = 0
    t0 = time.perf_counter()
    for epoch in range(start_epoch, args.num_train_epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                policy_chosen, policy_rejected = concatenated_forward(model, batch)
                with torch.no_grad():
                    ref_chosen, ref_rejected = concatenated_forward(ref_model, batch)
                loss = dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, args.beta)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()

            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.logging_steps == 0:
                tokens = (
                    step * grad_accum * accelerator.num_processes
                    * args.per_device_train_batch_size * 2 * args.max_seq_length
                )
                metrics = {
                    "loss": loss.item(),
                    "lr": scheduler.get_last_lr()[0],
                    "tokens_per_second": tokens / (time.perf_counter() - t0),
                }
                if accelerator.is_main_process:
                    print(f"step {step}/{total_steps} {metrics}")
                if args.with_tracking:
                    accelerator.log(metrics, step=step)
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main()
