import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

PROMPT = "Dishes: {dishes}\nMenu text:"


def encode(row, tokenizer, max_len):
    prompt = tokenizer(PROMPT.format(dishes=row["dishes"]), add_special_tokens=False)["input_ids"]
    answer = tokenizer(" " + row["menu"], add_special_tokens=False)["input_ids"]
    answer = answer + [tokenizer.eos_token_id]
    ids = (prompt + answer)[:max_len]
    labels = ([-100] * len(prompt) + answer)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B")
    p.add_argument("--train_file", default="data/menus.jsonl")
    p.add_argument("--output_dir", default="out/menu-lora")
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--grad_accum", type=int, default=8)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--resume_from", default=None)
    args = p.parse_args()

    targs = TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.grad_accum,
        bf16=True,
        optim="adamw_torch_fused",
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        ddp_find_unused_parameters=False,
        dataloader_num_workers=2,
        logging_steps=20,
        save_steps=400,
        save_total_limit=2,
        seed=args.seed,
        report_to="none",
    )

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )

    ds = load_dataset("json", data_files=args.train_file, split="train")
    with targs.main_process_first(desc="tokenise"):
        ds = ds.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_len": args.max_len},
            remove_columns=ds.column_names,
            num_proc=4,
        )

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume_from)
    trainer.save_model()


if __name__ == "__main__":
    main()
