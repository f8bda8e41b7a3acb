import os
import sys

import torch
import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


def load_cfg(path):
    with open(path) as f:
        return yaml.safe_load(f)


def main():
    cfg = load_cfg(sys.argv[1])

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        cfg["model"],
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",
    )
    model.config.use_cache = False
    model.config.pad_token_id = tokenizer.pad_token_id

    dataset = load_dataset("json", data_files=cfg["data"], split="train")
    dataset = dataset.select_columns(["messages"])

    args = SFTConfig(**cfg["sft"])
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        tokenizer=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cfg["lora"]),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
