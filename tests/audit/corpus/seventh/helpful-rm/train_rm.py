import inspect
import os
import sys
import tomllib

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from rm.data import PairCollator, Pairs
from rm.trainer import PairTrainer, TokenRate


def training_args(table):
    """The table comes from several years of configs: take what this version has."""
    known = inspect.signature(TrainingArguments.__init__).parameters
    return TrainingArguments(**{k: v for k, v in table.items() if k in known})


def accuracy(pred):
    margin = np.asarray(pred.predictions)
    return {"accuracy": float((margin > 0).mean()), "margin": float(margin.mean())}


def main(path):
    with open(path, "rb") as fh:
        cfg = tomllib.load(fh)
    args = training_args(cfg["trainer"])
    set_seed(args.seed)

    m = cfg["model"]
    tokenizer = AutoTokenizer.from_pretrained(m["base"], trust_remote_code=m["trust_remote_code"])
    tokenizer.pad_token = tokenizer.unk_token
    tokenizer.padding_side = "right"

    model = AutoModelForSequenceClassification.from_pretrained(
        m["base"],
        num_labels=1,
        dtype=getattr(torch, m["dtype"]),
        trust_remote_code=m["trust_remote_code"],
        attn_implementation="sdpa",
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", **cfg["lora"]))
    model.print_trainable_parameters()

    d = cfg["data"]
    train = Pairs(d["train"], tokenizer, d["max_length"])
    dev = Pairs(d["dev"], tokenizer, d["max_length"])

    trainer = PairTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=dev,
        data_collator=PairCollator(tokenizer.pad_token_id),
        compute_metrics=accuracy,
        callbacks=[TokenRate(d["max_length"])],
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "rm.toml")
