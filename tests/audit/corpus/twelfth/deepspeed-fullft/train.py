import fire
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

IGNORE = -100


def encode(row, tokenizer, max_len):
    prompt = tokenizer(f"Question: {row['question']}\nAnswer: ", add_special_tokens=False)["input_ids"]
    answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = (prompt + answer)[:max_len]
    labels = ([IGNORE] * len(prompt) + answer)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def compute_metrics(pred):
    guess = pred.predictions.argmax(-1)[:, :-1]
    gold = pred.label_ids[:, 1:]
    keep = gold != IGNORE
    return {"token_accuracy": float((guess[keep] == gold[keep]).mean())}


def train(
    data_path,
    eval_path,
    model_name="Qwen/Qwen2.5-0.5B",
    output_dir="out/qa-0.5b",
    max_len=1024,
    global_batch_size=256,
    micro_batch_size=4,
    lr=2e-5,
    epochs=2,
    deepspeed="ds_zero2.json",
    seed=42,
    resume=False,
    **extra,
):
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model_name)
    model = AutoModelForCausalLM.from_pretrained(model_name)

    data = load_dataset("json", data_files={"train": data_path, "test": eval_path})
    data = data.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_len": max_len},
        num_proc=8,
        remove_columns=data["train"].column_names,
    )

    grad_accum = global_batch_size // micro_batch_size
    args = TrainingArguments(
        output_dir=output_dir,
        num_train_epochs=epochs,
        per_device_train_batch_size=micro_batch_size,
        per_device_eval_batch_size=micro_batch_size,
        gradient_accumulation_steps=grad_accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_torch_fused",
        deepspeed=deepspeed,
        dataloader_num_workers=4,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        seed=seed,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=resume or None)
    trainer.save_model(output_dir)


if __name__ == "__main__":
    fire.Fire(train)
