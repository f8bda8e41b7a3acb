import argparse

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)

from data_utils import get_datasets


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base_model", default="meta-llama/Llama-3.2-1B")
    p.add_argument("--data_path", default="data/alpaca_tiny.jsonl")
    p.add_argument("--output_dir", default="out/alpaca-1b")
    p.add_argument("--cutoff_len", type=int, default=1024)
    p.add_argument("--val_fraction", type=float, default=0.1)
    p.add_argument("--micro_batch_size", type=int, default=4)
    p.add_argument("--gradient_accumulation_steps", type=int, default=2)
    p.add_argument("--num_epochs", type=int, default=3)
    p.add_argument("--learning_rate", type=float, default=2e-5)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--resume_from_checkpoint", default=None)
    return p.parse_args()


def main():
    args = get_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.base_model)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.base_model)

    train_ds, eval_ds = get_datasets(args.data_path, tokenizer, args.cutoff_len, args.val_fraction, args.seed)

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.micro_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        num_train_epochs=args.num_epochs,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        evaluation_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        save_safetensors=False,
        load_best_model_at_end=True,
        logging_steps=10,
        optim="adamw_torch_fused",
        report_to="none",
        seed=args.seed,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
