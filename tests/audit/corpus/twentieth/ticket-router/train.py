import json

import click
import evaluate
import numpy as np
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    set_seed,
)

from tickets import TicketDataset, load_split

accuracy = evaluate.load("accuracy")
f1 = evaluate.load("f1")


def compute_metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    out = accuracy.compute(predictions=guess, references=pred.label_ids)
    out.update(f1.compute(predictions=guess, references=pred.label_ids, average="macro"))
    return out


@click.command()
@click.option("--model", default="distilbert-base-uncased")
@click.option("--train-file", default="tickets/train.jsonl")
@click.option("--dev-file", default="tickets/dev.jsonl")
@click.option("--labels", default="tickets/labels.json")
@click.option("--out", default="runs/router")
@click.option("--epochs", default=5)
@click.option("--batch", default=64)
@click.option("--lr", default=3e-5)
@click.option("--seed", default=13)
@click.option("--resume/--no-resume", default=False)
def main(model, train_file, dev_file, labels, out, epochs, batch, lr, seed, resume):
    set_seed(seed)
    with open(labels) as f:
        names = json.load(f)
    tok = AutoTokenizer.from_pretrained(model)
    net = AutoModelForSequenceClassification.from_pretrained(
        model,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )

    train_set = TicketDataset(load_split(train_file), names, tok)
    dev_set = TicketDataset(load_split(dev_file), names, tok)

    targs = TrainingArguments(
        output_dir=out,
        num_train_epochs=epochs,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch * 2,
        learning_rate=lr,
        weight_decay=0.01,
        warmup_ratio=0.06,
        bf16=True,
        optim="adamw_torch_fused",
        dataloader_num_workers=4,
        evaluation_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        save_safetensors=False,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
        logging_steps=1,
        report_to=["tensorboard"],
        seed=seed,
    )
    trainer = Trainer(
        model=net,
        args=targs,
        train_dataset=train_set,
        eval_dataset=dev_set,
        processing_class=tok,
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(out)
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
