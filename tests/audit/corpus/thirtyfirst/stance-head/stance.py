#!/usr/bin/env python3
"""Stance detection (for / against / neutral) on letters to the editor."""
import os
import sys
from dataclasses import dataclass

import numpy as np
import torch
from datasets import load_dataset
from sklearn.metrics import f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

LABELS = ["against", "neutral", "for"]


@dataclass
class Project:
    model: str
    train_file: str
    dev_file: str
    max_length: int = 512


def macro_f1(pred):
    logits, labels = pred
    return {"macro_f1": f1_score(labels, np.argmax(logits, axis=-1), average="macro")}


def main():
    project, args = HfArgumentParser((Project, TrainingArguments)).parse_json_file(os.path.abspath(sys.argv[1]))
    set_seed(args.seed)  # the new head is initialised before the Trainer sets its seed

    tok = AutoTokenizer.from_pretrained(project.model)
    files = {"train": project.train_file, "dev": project.dev_file}
    ds = load_dataset("csv", data_files=files)

    def encode(rows):
        enc = tok(rows["topic"], rows["letter"], truncation="only_second", max_length=project.max_length)
        enc["labels"] = [LABELS.index(s) for s in rows["stance"]]
        return enc

    with args.main_process_first(desc="encode"):
        ds = ds.map(encode, batched=True, num_proc=4, remove_columns=ds["train"].column_names)

    model = AutoModelForSequenceClassification.from_pretrained(
        project.model,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={s: i for i, s in enumerate(LABELS)},
        # fp32 weights under bf16 autocast
        dtype=torch.float32,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        processing_class=tok,
        data_collator=DataCollatorWithPadding(tok, pad_to_multiple_of=8),
        compute_metrics=macro_f1,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    result = trainer.evaluate()
    trainer.log_metrics("eval", result)
    trainer.save_metrics("eval", result)
    trainer.save_model()


if __name__ == "__main__":
    main()
