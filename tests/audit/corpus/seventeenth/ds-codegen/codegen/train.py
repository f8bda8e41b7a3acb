import argparse
import os

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from codegen.data import load_scripts


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--deepspeed", default=None)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--max-length", type=int, default=2048)
    p.add_argument("--local_rank", type=int, default=-1)
    return p.parse_args()


def main():
    args = get_args()
    targs = TrainingArguments(
        output_dir=args.out,
        deepspeed=args.deepspeed,
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=args.accum,
        learning_rate=args.lr,
        num_train_epochs=2,
        warmup_ratio=0.02,
        lr_scheduler_type="cosine",
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        dataloader_prefetch_factor=4,
        eval_strategy="steps",
        eval_steps=500,
        save_steps=500,
        save_total_limit=2,
        logging_steps=20,
        seed=0,
        report_to="none",
    )

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.eos_token
    data = load_scripts(args.data, tokenizer, args.max_length)
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False, pad_to_multiple_of=8),
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
