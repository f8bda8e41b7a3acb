import argparse

import yaml
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer


def to_text(row):
    return {"text": f"{row['body'].strip()}\n\nHEADLINE: {row['headline'].strip()}\nDECK: {row['deck'].strip()}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.yaml")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    with open(args.config) as handle:
        config = yaml.safe_load(handle)

    rows = load_dataset("json", data_files=config["data_file"], split="train")
    rows = rows.map(to_text, remove_columns=rows.column_names)
    rows = rows.shuffle(seed=config["training"]["seed"])
    held_out = rows.select(range(config["eval_rows"]))

    trainer = SFTTrainer(
        model=config["model"],
        args=SFTConfig(**config["training"]),
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=AutoTokenizer.from_pretrained(config["model"]),
    )
    trainer.train(resume_from_checkpoint=args.resume or None)
    trainer.save_model()


if __name__ == "__main__":
    main()
