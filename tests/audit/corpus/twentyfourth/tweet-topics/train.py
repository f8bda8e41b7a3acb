import hydra
import numpy as np
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)


def accuracy(pred):
    logits, labels = pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    set_seed(cfg.seed)
    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForSequenceClassification.from_pretrained(cfg.model, num_labels=cfg.num_labels)

    # csv columns: text (a tweet, at most 280 characters), label (0..18)
    ds = load_dataset("csv", data_files={"train": cfg.data.train, "valid": cfg.data.valid})
    ds = ds.map(
        lambda rows: tok(rows["text"], truncation=True, max_length=cfg.max_length, padding="max_length"),
        batched=True,
        remove_columns=["text"],
    )

    args = TrainingArguments(
        output_dir=cfg.train.output_dir,
        per_device_train_batch_size=cfg.train.batch_size,
        per_device_eval_batch_size=64,
        learning_rate=cfg.train.lr,
        num_train_epochs=cfg.train.epochs,
        warmup_ratio=cfg.train.warmup_ratio,
        weight_decay=0.01,
        optim="adamw_torch_fused",
        group_by_length=True,
        dataloader_num_workers=2,
        evaluation_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=50,
        seed=cfg.seed,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        data_collator=DataCollatorWithPadding(tok),
        processing_class=tok,
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=True if cfg.train.resume else None)
    trainer.save_model()


if __name__ == "__main__":
    main()
