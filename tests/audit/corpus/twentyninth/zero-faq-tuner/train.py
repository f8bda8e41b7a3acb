import argparse
import os

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-7B")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--deepspeed_config", default=None)
    p.add_argument("--local_rank", type=int, default=-1)
    p.add_argument("--seed", type=int, default=1234)
    return p.parse_args()


def main():
    args = get_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        device_map="auto",
        attn_implementation="sdpa",
    )
    model.config.use_cache = False

    def encode(row):
        prompt = f"Question: {row['question']}\nAnswer: "
        answer = row["answer"] + tokenizer.eos_token
        prompt_len = len(tokenizer(prompt).input_ids)
        enc = tokenizer(
            prompt + answer,
            padding="max_length",
            truncation=True,
            max_length=args.max_len,
        )
        enc["labels"] = [
            tok if i >= prompt_len and keep else -100
            for i, (tok, keep) in enumerate(zip(enc["input_ids"], enc["attention_mask"]))
        ]
        return enc

    data = load_dataset("json", data_files=args.data, split="train")
    data = data.map(encode, remove_columns=data.column_names, num_proc=8)

    targs = TrainingArguments(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=args.accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        deepspeed=args.deepspeed_config,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=500,
        save_total_limit=2,
        save_safetensors=False,
        seed=args.seed,
        report_to="wandb",
    )
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
