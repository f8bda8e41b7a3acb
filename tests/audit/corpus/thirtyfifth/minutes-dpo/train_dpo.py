import sys

import torch
import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

PROMPT = "### Transcript\n{transcript}\n\n### Minutes\n"


def make_pair(row):
    prompt = PROMPT.format(transcript=row["transcript"].strip())
    return {
        "prompt": prompt,
        "chosen": prompt + row["chosen"].strip(),
        "rejected": prompt + row["rejected"].strip(),
    }


def load_model(name, dtype):
    return AutoModelForCausalLM.from_pretrained(
        name,
        torch_dtype=dtype,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )


def main(path):
    with open(path) as handle:
        config = yaml.safe_load(handle)

    tokenizer = AutoTokenizer.from_pretrained(config["model_name"])
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<|finetune_right_pad_id|>"
    policy = load_model(config["model_name"], torch.float32)
    policy.config.use_cache = False
    reference = load_model(config["model_name"], torch.bfloat16)

    args = DPOConfig(**config["training"])
    rows = load_dataset("json", data_files=config["train_file"], split="train")
    rows = rows.map(make_pair, remove_columns=["meeting", "transcript"])
    parts = rows.train_test_split(test_size=config["eval_fraction"], seed=args.seed)

    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=args,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1])
