import numpy as np
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

from ticket_router.args import parse_args
from ticket_router.data import load_splits


def metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    return {
        "accuracy": accuracy_score(pred.label_ids, guess),
        "f1": f1_score(pred.label_ids, guess, average="macro"),
    }


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    train_ds, eval_ds, names = load_splits(args.train_file, tokenizer, args.max_length)
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model_name,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=2 * args.batch_size,
        learning_rate=args.lr,
        warmup_ratio=0.06,
        weight_decay=0.01,
        fp16=args.fp16,
        optim="adamw_torch_fused",
        group_by_length=True,
        dataloader_num_workers=8,
        evaluation_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
        logging_steps=50,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        processing_class=tokenizer,
        compute_metrics=metrics,
    )
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
