import argparse
import json
import os

import numpy as np
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from newsclf.data import load_sections


def compute_metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    return {
        "accuracy": accuracy_score(pred.label_ids, guess),
        "macro_f1": f1_score(pred.label_ids, guess, average="macro"),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--output_dir")
    cli = parser.parse_args()
    with open(cli.config) as fh:
        cfg = json.load(fh)
    if cli.output_dir:
        cfg["trainer"]["output_dir"] = cli.output_dir

    args = TrainingArguments(**cfg["trainer"])
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg["model"]["name"])
    with args.main_process_first():
        data, names = load_sections(cfg["data"], tokenizer, cfg["model"]["max_length"])
    model = AutoModelForSequenceClassification.from_pretrained(
        cfg["model"]["name"],
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["valid"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8),
        compute_metrics=compute_metrics,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    trainer.log_metrics("valid", trainer.evaluate())


if __name__ == "__main__":
    main()
