import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

RESPONSE_KEY = "### Response:"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T")
    p.add_argument("--data", default="data/alpaca_mini.jsonl")
    p.add_argument("--output_dir", default="out/tinyllama-alpaca")
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--resume", action="store_true")
    return p.parse_args()


def format_batch(batch):
    texts = []
    for instruction, output in zip(batch["instruction"], batch["output"]):
        texts.append(f"### Instruction:\n{instruction}\n\n{RESPONSE_KEY}\n{output}")
    return texts


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.unk_token
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    dataset = load_dataset("json", data_files=args.data, split="train")
    collator = DataCollatorForCompletionOnlyLM(RESPONSE_KEY, tokenizer=tokenizer)

    config = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=2,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_seq_length=args.max_len,
        packing=False,
        bf16=True,
        optim="adamw_torch_fused",
        logging_steps=20,
        save_strategy="epoch",
        save_total_limit=2,
        dataset_num_proc=4,
        dataloader_num_workers=2,
        seed=args.seed,
        report_to="none",
    )
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=dataset,
        formatting_func=format_batch,
        data_collator=collator,
        tokenizer=tokenizer,
        peft_config=lora,
    )
    trainer.train(resume_from_checkpoint=args.resume or None)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
