"""Preference tuning for a friendlier tone (full parameters, 4 GPUs)."""
import sys
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArgs:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/pairs.jsonl")
    resume: bool = field(default=False)


def load_pairs(path, tok):
    ds = load_dataset("json", data_files=path, split="train")

    def build(row):
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        return {"prompt": prompt, "chosen": row["friendly"], "rejected": row["blunt"]}

    return ds.map(build, remove_columns=ds.column_names, num_proc=4)


def main():
    parser = HfArgumentParser((ScriptArgs, DPOConfig))
    script, cfg = parser.parse_yaml_file(sys.argv[1])
    set_seed(cfg.seed)

    tok = AutoTokenizer.from_pretrained(script.model_name)
    policy = AutoModelForCausalLM.from_pretrained(
        script.model_name,
        torch_dtype=torch.bfloat16,
        device_map="auto",
        use_cache=False,
    )
    reference = AutoModelForCausalLM.from_pretrained(script.model_name)

    trainer = DPOTrainer(
        policy,
        reference,
        args=cfg,
        train_dataset=load_pairs(script.train_file, tok),
        tokenizer=tok,
    )
    trainer.train(resume_from_checkpoint=script.resume)
    trainer.save_model(cfg.output_dir)
    tok.save_pretrained(cfg.output_dir)


if __name__ == "__main__":
    main()
