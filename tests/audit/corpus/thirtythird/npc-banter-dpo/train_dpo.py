import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DPOConfig, DPOTrainer

BASE = "mistralai/Mistral-7B-Instruct-v0.3"


def render(tokenizer, row):
    scene = f"You are {row['npc']}. {row['scene']}\n\n{row['player']}"
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": scene}], tokenize=False, add_generation_prompt=True
    )
    return {
        "prompt": prompt,
        "chosen": prompt + " " + row["ship"],
        "rejected": prompt + " " + row["drop"],
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--epochs", type=float, default=2)
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.unk_token

    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    ref_model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False

    pairs = load_dataset("json", data_files=args.pairs, split="train")
    pairs = pairs.map(lambda r: render(tokenizer, r), remove_columns=pairs.column_names)
    split = pairs.train_test_split(test_size=0.1, seed=args.seed)

    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=["query_key_value", "dense"],
    )

    config = DPOConfig(
        output_dir=args.out,
        beta=args.beta,
        force_use_ref_model=True,
        max_length=1024,
        max_prompt_length=768,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=5e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        optim="adamw_torch_fused",
        bf16=True,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        seed=args.seed,
        report_to=["tensorboard"],
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=config,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
