from pathlib import Path

import pandas as pd
import typer
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

app = typer.Typer()
MODEL = "Qwen/Qwen2.5-0.5B"


def make_rows(frame, tokenizer, max_len):
    rows = []
    for r in frame.itertuples():
        prompt = tokenizer(f"Product: {r.title}\nFeatures: {r.features}\nDescription:")["input_ids"]
        answer = tokenizer(" " + r.description)["input_ids"] + [tokenizer.eos_token_id]
        ids = (prompt + answer)[:max_len]
        labels = ([-100] * len(prompt) + answer)[:max_len]
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return Dataset.from_list(rows)


@app.command()
def main(
    csv: Path = Path("products.csv"),
    out: Path = Path("out/descriptions"),
    batch_size: int = 1,
    accum: int = 64,
    epochs: int = 3,
    lr: float = 2e-5,
    max_len: int = 384,
    resume: bool = False,
):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="sdpa")

    frame = pd.read_csv(csv).dropna()
    test = frame.sample(frac=0.05, random_state=42)
    train = frame.drop(test.index)
    train_ds = make_rows(train, tokenizer, max_len)
    test_ds = make_rows(test, tokenizer, max_len)

    args = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=accum,
        learning_rate=lr,
        lr_scheduler_type="constant",
        warmup_ratio=0.05,
        optim="adamw_torch_fused",
        bf16=True,
        dataloader_num_workers=16,
        eval_strategy="epoch",
        prediction_loss_only=True,
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=10,
        report_to="none",
        seed=42,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=test_ds,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
    )
    trainer.train(resume_from_checkpoint=resume or None)
    trainer.save_model(str(out))


if __name__ == "__main__":
    app()
