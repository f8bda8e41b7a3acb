"""Completion-only LoRA SFT for meeting summaries.

    accelerate launch --config_file configs/accelerate_2gpu.yaml sft.py --config configs/qwen3_4b.yaml
"""
import os
from dataclasses import dataclass

from datasets import load_dataset
from transformers import set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config

SYSTEM = "You write the minutes of a meeting: decisions first, then open points."


@dataclass
class DataArgs:
    train_file: str
    eval_file: str


def to_prompt_completion(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["transcript"].strip()},
        ],
        "completion": [{"role": "assistant", "content": row["minutes"].strip()}],
    }


def main():
    data, args, model_args = TrlParser((DataArgs, SFTConfig, ModelConfig)).parse_args_and_config()
    set_seed(args.seed)  # before the adapter is initialised
    args.model_init_kwargs = {
        "dtype": model_args.dtype,
        "attn_implementation": model_args.attn_implementation,
        "revision": model_args.model_revision,
    }

    ds = load_dataset("json", data_files={"train": data.train_file, "eval": data.eval_file})
    ds = ds.map(to_prompt_completion, remove_columns=["transcript", "minutes"])

    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["eval"],
        peft_config=get_peft_config(model_args),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
