import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.2-3B"
HEAD = "\n\n### Hospital course:\n"


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", default="out")
    ap.add_argument("--val-share", type=float, default=0.05)
    ap.add_argument("--epochs", type=float, default=2)
    ap.add_argument("--seed", type=int, default=13)
    return ap.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.eos_token

    def to_text(row):
        return {"text": "### Ward notes:\n" + row["notes"] + HEAD + row["course"] + tokenizer.eos_token}

    letters = load_dataset("json", data_files=args.data, split="train")
    letters = letters.map(to_text, remove_columns=letters.column_names, num_proc=8)
    held_out = letters.train_test_split(test_size=args.val_share, seed=args.seed)["test"]

    head_ids = tokenizer(HEAD, add_special_tokens=False)["input_ids"][1:]
    collator = DataCollatorForCompletionOnlyLM(response_template=head_ids, tokenizer=tokenizer)

    model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa")

    config = SFTConfig(
        output_dir=args.out,
        dataset_text_field="text",
        max_seq_length=1024,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="steps",
        save_steps=500,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        seed=args.seed,
        report_to="none",
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=letters,
        eval_dataset=held_out,
        processing_class=tokenizer,
        data_collator=collator,
    )
    trainer.train()
    trainer.save_model(f"{args.out}/best")


if __name__ == "__main__":
    main()
