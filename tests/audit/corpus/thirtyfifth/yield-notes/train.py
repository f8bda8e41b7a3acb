import os
import sys

import torch
import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B"


def to_pair(row):
    record = f"Reactants: {row['reactants']}\nProduct: {row['product']}\nYield: {row['yield_percent']} %\nNote:"
    return {"prompt": record, "completion": " " + row["note"].strip()}


def main(path):
    with open(path) as handle:
        args = SFTConfig(**yaml.safe_load(handle))
    data = load_dataset("json", data_files={"train": "data/train.jsonl", "valid": "data/valid.jsonl"})
    data = data.map(to_pair, remove_columns=data["train"].column_names)

    model = AutoModelForCausalLM.from_pretrained(
        BASE, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["valid"],
        processing_class=AutoTokenizer.from_pretrained(BASE),
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sft.yaml")
