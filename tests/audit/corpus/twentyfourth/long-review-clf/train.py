import os
from typing import Annotated

import numpy as np
import typer
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

app = typer.Typer()


def metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    return {"accuracy": float((guess == pred.label_ids).mean())}


@app.command()
def main(
    data: Annotated[str, typer.Option(help="folder with train.csv and valid.csv")] = "data",
    out: str = "out/reviews",
    model_id: str = "FacebookAI/roberta-base",
    batch_size: int = 32,
    lr: float = 2e-5,
    epochs: int = 3,
    seed: int = 61,
):
    set_seed(seed)
    tok = AutoTokenizer.from_pretrained(model_id)
    model = AutoModelForSequenceClassification.from_pretrained(model_id, num_labels=5, attn_implementation="sdpa")

    ds = load_dataset("csv", data_files={s: os.path.join(data, f"{s}.csv") for s in ("train", "valid")})
    # no padding here: the collator pads each batch to its longest review
    ds = ds.map(
        lambda rows: tok(rows["review"], truncation=True, max_length=512),
        batched=True, num_proc=4, remove_columns=["review"],
    )

    args = TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=64,
        learning_rate=lr,
        num_train_epochs=epochs,
        warmup_ratio=0.06,
        weight_decay=0.01,
        optim="adamw_torch_fused",
        bf16=True,
        group_by_length=True,
        dataloader_num_workers=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=50,
        seed=seed,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        data_collator=DataCollatorWithPadding(tok, pad_to_multiple_of=8),
        processing_class=tok,
        compute_metrics=metrics,
    )
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    app()
