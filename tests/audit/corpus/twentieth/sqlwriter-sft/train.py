"""Teach a small base model to write SQL from a schema and a question."""
import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--output_dir", default="out/sqlwriter")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--grad_accum", type=int, default=2)
    p.add_argument("--scheduler", default="cosine")
    p.add_argument("--max_length", type=int, default=2048)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def to_prompt_completion(row):
    prompt = f"-- schema\n{row['schema']}\n-- question\n{row['question']}\n-- query\n"
    return {"prompt": prompt, "completion": row["query"]}


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        attn_implementation="sdpa",
        use_cache=False,
    )

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(to_prompt_completion, remove_columns=ds.column_names)
    split = ds.train_test_split(test_size=0.02, seed=args.seed)

    config = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.grad_accum,
        learning_rate=args.lr,
        lr_scheduler_type=args.scheduler,
        warmup_ratio=0.03,
        max_length=args.max_length,
        packing=True,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        dataloader_num_workers=2,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        report_to="tensorboard",
        seed=args.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
