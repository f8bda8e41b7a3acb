import argparse
import os

import yaml
from datasets import load_from_disk
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from modelling import load


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", required=True)
    a, _ = p.parse_known_args()
    cfg = yaml.safe_load(open(a.config))

    args = TrainingArguments(**cfg["training"])
    model, tok = load(cfg["model"])
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=load_from_disk(cfg["dataset"]),
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, pad_to_multiple_of=8),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
