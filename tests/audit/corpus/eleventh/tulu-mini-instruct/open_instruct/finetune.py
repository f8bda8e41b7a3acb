import math
import os
import sys
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
import yaml
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

from dataset import encode_example


@dataclass
class FlatArguments:
    model_name_or_path: str
    tokenizer_name: str
    dataset_name: str
    output_dir: str
    max_seq_length: int = 2048
    use_flash_attn: bool = True
    use_lora: bool = False
    lora_rank: int = 64
    lora_alpha: int = 16
    lora_dropout: float = 0.1
    gradient_checkpointing: bool = False
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    num_train_epochs: int = 2
    learning_rate: float = 2e-5
    warmup_ratio: float = 0.03
    logging_steps: int = 10
    checkpointing_steps: int = 1000
    resume_from_checkpoint: str = ""
    preprocessing_num_workers: int = 16
    seed: int = 42


def load_args(path):
    with open(path) as fh:
        return FlatArguments(**yaml.safe_load(fh))


def main():
    args = load_args(sys.argv[1])
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2" if args.use_flash_attn else "sdpa",
        use_cache=not args.gradient_checkpointing,
    )
    if args.use_lora:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.CAUSAL_LM,
                r=args.lora_rank,
                lora_alpha=args.lora_alpha,
                lora_dropout=args.lora_dropout,
                target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            ),
        )
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()

    raw = load_dataset(args.dataset_name, split="train")
    with accelerator.main_process_first():
        train_dataset = raw.map(
            partial(encode_example, tokenizer=tokenizer, max_seq_length=args.max_seq_length),
            remove_columns=raw.column_names,
            num_proc=args.preprocessing_num_workers,
            desc="Tokenizing",
        )
        train_dataset.set_format(type="pt")
        train_dataset = train_dataset.filter(lambda row: (row["labels"] != -100).any())

    loader = DataLoader(
        train_dataset,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tokenizer=tokenizer, model=None, padding="longest"),
        num_workers=4,
        pin_memory=True,
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.learning_rate, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    updates_per_epoch = math.ceil(len(loader) / args.gradient_accumulation_steps)
    max_steps = args.num_train_epochs * updates_per_epoch
    scheduler = get_scheduler(
        "linear",
        optimizer,
        num_warmup_steps=int(args.warmup_ratio * max_steps) * accelerator.num_processes,
        num_training_steps=max_steps * accelerator.num_processes,
    )
    scheduler = accelerator.prepare(scheduler)

    done, skip, first_epoch = 0, 0, 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        done = int(os.path.basename(args.resume_from_checkpoint).split("_")[-1])
        first_epoch = done // updates_per_epoch
        skip = (done % updates_per_epoch) * args.gradient_accumulation_steps

    model.train()
    total_loss = torch.zeros((), device=accelerator.device)
    for epoch in range(first_epoch, args.num_train_epochs):
        active = accelerator.skip_first_batches(loader, skip) if epoch == first_epoch and skip else loader
        for batch in active:
            with accelerator.accumulate(model):
                labels = batch.pop("labels")
                outputs = model(**batch)
                log_probs = F.log_softmax(outputs.logits.float(), dim=-1)[:, :-1]
                loss = F.nll_loss(log_probs.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
                total_loss += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(trainable, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % args.logging_steps == 0:
                    mean = accelerator.gather(total_loss).mean().item()
                    mean /= args.logging_steps * args.gradient_accumulation_steps
                    accelerator.print(f"step {done}/{max_steps} loss {mean:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
                    total_loss.zero_()
                if done % args.checkpointing_steps == 0:
                    accelerator.save_state(os.path.join(args.output_dir, f"step_{done}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
