"""Make a small chat model more polite with DPO."""
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-3B-Instruct")
    train_file: str = field(default="pairs.jsonl")
    resume: bool = field(default=False)


def build_pairs(path, tokenizer):
    ds = load_dataset("json", data_files=path, split="train")

    def to_row(ex):
        return {
            "prompt": tokenizer.apply_chat_template(
                ex["chosen"][:-1], tokenize=False, add_generation_prompt=True
            ),
            "chosen": tokenizer.apply_chat_template(ex["chosen"], tokenize=False),
            "rejected": tokenizer.apply_chat_template(ex["rejected"], tokenize=False),
        }

    return ds.map(to_row, remove_columns=ds.column_names)


def main():
    script, args = HfArgumentParser((ScriptArguments, DPOConfig)).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        script.model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",
    )
    model.config.use_cache = False

    ds = build_pairs(script.train_file, tokenizer).train_test_split(test_size=0.02, seed=args.seed)

    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=script.resume or None)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
