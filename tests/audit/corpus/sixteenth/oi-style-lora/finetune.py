"""LoRA instruction tuning with flat argument dataclasses."""
import os
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
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


@dataclass
class FlatArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-3B-Instruct")
    train_file: str = field(default="data/train.jsonl")
    output_dir: str = field(default="output/")
    max_seq_length: int = field(default=2048)
    preprocessing_num_workers: int = field(default=16)
    per_device_train_batch_size: int = field(default=2, metadata={"help": "Batch size per GPU."})
    gradient_accumulation_steps: int = field(default=8)
    learning_rate: float = field(default=1e-4)
    num_train_epochs: int = field(default=2)
    warmup_ratio: float = field(default=0.03)
    lora_rank: int = field(default=64)
    lora_alpha: int = field(default=16)
    logging_steps: int = field(default=10)


def encode(row, tok, max_len):
    messages = row["messages"]
    prompt = tok.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(messages[-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (p + a)[:max_len]
    labels = ([-100] * len(p) + a)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def token_loss(logits, labels):
    logp = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    target = labels[:, 1:]
    mask = target.ne(-100)
    picked = logp.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * mask).sum() / mask.sum().clamp(min=1)


def main(args: FlatArguments):
    world = int(os.environ["WORLD_SIZE"])
    accum = max(1, args.gradient_accumulation_steps // world)
    accelerator = Accelerator(gradient_accumulation_steps=accum, mixed_precision="bf16")

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        trust_remote_code=True,
    )
    model.config.use_cache = False
    peft_config = LoraConfig(
        task_type="CAUSAL_LM",
        r=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_dropout=0.05,
        target_modules="all-linear",
    )
    model = get_peft_model(model, peft_config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        ds = ds.map(
            encode,
            fn_kwargs={"tok": tok, "max_len": args.max_seq_length},
            num_proc=args.preprocessing_num_workers,
            remove_columns=ds.column_names,
        )
        ds = ds.filter(lambda r: any(l != -100 for l in r["labels"]))

    loader = DataLoader(
        ds,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, padding=True),
        num_workers=4,
        pin_memory=True,
    )
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.learning_rate, weight_decay=0.0, fused=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = args.num_train_epochs * -(-len(loader) // accum)
    sched = get_scheduler("linear", opt, int(args.warmup_ratio * total), total)

    done = 0
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                labels = batch.pop("labels")
                loss = token_loss(model(**batch).logits, labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                opt.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                sched.step()
                done += 1
                if done % args.logging_steps == 0:
                    accelerator.print(f"step {done}/{total} loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir)
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0])
