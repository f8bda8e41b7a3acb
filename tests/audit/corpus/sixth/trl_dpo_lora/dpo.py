"""DPO with TRL: LoRA policy, reference = the base with the adapter off, its log-probs computed once.

    accelerate launch --config_file configs/ddp.yaml dpo.py --config configs/qwen7b_dpo.yaml
"""
import os
from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config


@dataclass
class DataArgs:
    train_file: str
    eval_file: str


def to_pairs(row):
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def main():
    data, args, model_args = TrlParser((DataArgs, DPOConfig, ModelConfig)).parse_args_and_config()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    ds = load_dataset("json", data_files={"train": data.train_file, "eval": data.eval_file})
    ds = ds.map(to_pairs)

    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["eval"],
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
