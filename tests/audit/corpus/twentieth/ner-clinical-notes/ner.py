import os
import sys
from dataclasses import dataclass

import numpy as np
from datasets import load_dataset
from seqeval.metrics import f1_score, precision_score, recall_score
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

LABELS = ["O", "B-DRUG", "I-DRUG", "B-DOSE", "I-DOSE", "B-SIGN", "I-SIGN"]
INDEX = {name: i for i, name in enumerate(LABELS)}


@dataclass
class TaskArguments:
    model_name: str
    train_file: str
    dev_file: str
    max_length: int = 512


def encode(batch, tokenizer, max_length):
    enc = tokenizer(batch["words"], is_split_into_words=True, truncation=True, max_length=max_length)
    labels = []
    for i, tags in enumerate(batch["tags"]):
        row, previous = [], None
        for word in enc.word_ids(i):
            row.append(-100 if word is None or word == previous else INDEX[tags[word]])
            previous = word
        labels.append(row)
    enc["labels"] = labels
    enc["length"] = [len(ids) for ids in enc["input_ids"]]
    return enc


def metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    gold, found = [], []
    for g, p in zip(pred.label_ids, guess):
        keep = g != -100
        gold.append([LABELS[i] for i in g[keep]])
        found.append([LABELS[i] for i in p[keep]])
    return {
        "precision": precision_score(gold, found),
        "recall": recall_score(gold, found),
        "f1": f1_score(gold, found),
    }


def main():
    parser = HfArgumentParser((TaskArguments, TrainingArguments))
    task, args = parser.parse_json_file(sys.argv[1])
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(task.model_name, add_prefix_space=True)
    data = load_dataset("json", data_files={"train": task.train_file, "dev": task.dev_file})
    data = data.map(
        encode,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "max_length": task.max_length},
        remove_columns=data["train"].column_names,
    )
    model = AutoModelForTokenClassification.from_pretrained(
        task.model_name, num_labels=len(LABELS), id2label=dict(enumerate(LABELS)), label2id=INDEX
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        data_collator=DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=8),
        processing_class=tokenizer,
        compute_metrics=metrics,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
