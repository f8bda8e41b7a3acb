import os
import sys
from dataclasses import dataclass, field

import numpy as np
import yaml
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


@dataclass
class ScriptArgs:
    model_name: str
    train_file: str
    valid_file: str
    num_labels: int
    max_length: int = field(default=512)


def read_args(argv):
    """YAML first, then --key value pairs from the command line on top."""
    with open(argv[0]) as f:
        cfg = yaml.safe_load(f)
    rest = argv[1:]
    for flag, value in zip(rest[::2], rest[1::2]):
        cfg[flag.removeprefix("--")] = yaml.safe_load(value)
    return HfArgumentParser((ScriptArgs, TrainingArguments)).parse_dict(cfg)


def metrics(pred):
    return {"f1": f1_score(pred.label_ids, np.argmax(pred.predictions, axis=-1), average="macro")}


def main():
    script, args = read_args(sys.argv[1:])
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(script.model_name)
    model = AutoModelForSequenceClassification.from_pretrained(
        script.model_name, num_labels=script.num_labels, attn_implementation="sdpa"
    )

    def encode(batch):
        enc = tok(batch["text"], truncation=True, max_length=script.max_length)
        enc["length"] = [len(x) for x in enc["input_ids"]]
        return enc

    files = {"train": script.train_file, "validation": script.valid_file}
    with args.main_process_first(desc="tokenise"):
        data = load_dataset("csv", data_files=files)
        data = data.map(encode, batched=True, remove_columns=["text"])

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=DataCollatorWithPadding(tok, pad_to_multiple_of=8),
        processing_class=tok,
        compute_metrics=metrics,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
