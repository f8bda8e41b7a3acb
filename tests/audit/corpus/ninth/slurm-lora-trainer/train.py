import argparse
import os

from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mistralai/Mistral-7B-v0.3")
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--max_length", type=int, default=2048)
    parser.add_argument("--batch_size", type=int, default=8, help="per-device batch size")
    parser.add_argument("--grad_accum", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="mixed precision training in bf16")
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in output_dir")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_encoder(tokenizer, max_length):
    def encode(row):
        prompt = tokenizer(f"[INST] {row['question']} [/INST]")["input_ids"]
        answer = tokenizer(" " + row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        input_ids = (prompt + answer)[:max_length]
        labels = ([-100] * len(prompt) + answer)[:max_length]
        return {"input_ids": input_ids, "attention_mask": [1] * len(input_ids), "labels": labels}

    return encode


def main():
    args = parse_args()
    set_seed(args.seed)
    world_size = int(os.environ["WORLD_SIZE"])

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")
    model.config.use_cache = False

    lora_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora_config)
    model.print_trainable_parameters()

    raw = load_dataset("json", data_files=args.train_file, split="train")
    train_dataset = raw.map(
        make_encoder(tokenizer, args.max_length), remove_columns=raw.column_names, num_proc=8
    )

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.batch_size // world_size,
        gradient_accumulation_steps=args.grad_accum,
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_hf",
        gradient_checkpointing=args.gradient_checkpointing,
        ddp_find_unused_parameters=False,
        logging_steps=10,
        save_steps=200,
        save_total_limit=3,
        report_to="none",
        seed=args.seed,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest", pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(os.path.join(args.output_dir, "final"))


if __name__ == "__main__":
    main()
