from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    train_file: str = field(default="data/pairs.jsonl")
    dpo_beta: float = field(default=0.1)
    lora_r: int = field(default=32)
    lora_alpha: int = field(default=64)
    resume_from: Optional[str] = field(default=None)


def to_pairs(tokenizer):
    def fn(row):
        messages = [
            {"role": "system", "content": "You summarise meeting minutes."},
            {"role": "user", "content": row["minutes"]},
        ]
        return {
            "prompt": tokenizer.apply_chat_template(messages, tokenize=False),
            "chosen": row["better"],
            "rejected": row["worse"],
        }

    return fn


def main():
    parser = HfArgumentParser((ScriptArguments, DPOConfig))
    args, cfg = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)

    model_kwargs = dict(
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",
    )
    model = AutoModelForCausalLM.from_pretrained(args.model_name, **model_kwargs)
    ref_model = AutoModelForCausalLM.from_pretrained(args.model_name, **model_kwargs)
    model.config.use_cache = False

    ds = load_dataset("json", data_files=args.train_file, split="train")
    ds = ds.map(to_pairs(tokenizer), remove_columns=ds.column_names)

    peft_config = LoraConfig(
        r=args.lora_r,
        lora_alpha=args.lora_alpha,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=cfg,
        beta=args.dpo_beta,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint=args.resume_from)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
