import os
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_scheduler,
)

from tulip.args import FlatArguments
from tulip.data import encode_messages


def main(args: FlatArguments):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(
            task_type="CAUSAL_LM",
            r=args.lora_rank,
            lora_alpha=args.lora_alpha,
            lora_dropout=args.lora_dropout,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        data = raw.map(
            partial(encode_messages, tokenizer=tokenizer, max_seq_length=args.max_seq_length),
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
            desc="tokenise",
        )
    loader = DataLoader(
        data,
        shuffle=True,
        batch_size=args.per_device_train_batch_size,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, model=None, padding="longest"),
        num_workers=4,
        pin_memory=True,
    )
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
        fused=True,
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = -(-len(loader) // args.gradient_accumulation_steps) * args.num_train_epochs
    scheduler = get_scheduler("linear", optimizer, int(args.warmup_ratio * updates), updates)
    accelerator.register_for_checkpointing(scheduler)

    first_epoch = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        first_epoch = int(args.resume_from_checkpoint.rstrip("/").split("_")[-1]) + 1

    model.train()
    step = 0
    total = torch.zeros((), device=accelerator.device)
    for epoch in range(first_epoch, args.num_train_epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                if step % args.logging_steps == 0:
                    mean = accelerator.gather(total).mean().item()
                    mean /= args.gradient_accumulation_steps * args.logging_steps
                    accelerator.print(f"epoch {epoch} step {step}/{updates} loss {mean:.4f}")
                    total.zero_()
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unwrapped = accelerator.unwrap_model(model)
        torch.save(unwrapped.state_dict(), os.path.join(args.output_dir, "pytorch_model.bin"))
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0])
