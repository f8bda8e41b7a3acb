import argparse

from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=BASE)
    p.add_argument("--data", default="data/tickets.jsonl")
    p.add_argument("--out", default="runs/ticket-reply")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--seq_len", type=int, default=2048)
    p.add_argument("--packing", action="store_true")
    p.add_argument("--resume", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.train_test_split(test_size=0.05, seed=13)

    config = SFTConfig(
        output_dir=args.out,
        max_seq_length=args.seq_len,
        per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=args.batch,
        gradient_accumulation_steps=args.accum,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=args.epochs,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        logging_steps=1,
        report_to=["wandb"],
        seed=13,
        model_init_kwargs={
            "attn_implementation": "flash_attention_2",
            "dtype": "bfloat16",
        },
    )
    trainer = SFTTrainer(
        model=args.model,
        args=config,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
