from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.commands.cli_utils import TrlParser


@dataclass
class ScriptArgs:
    model_path: str = field(default="Qwen/Qwen2.5-3B-Instruct")
    pairs: str = field(default="data/pairs.jsonl")


def to_strings(tok):
    def fn(row):
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
        )
        return {
            "prompt": prompt,
            "chosen": row["good"] + "<|im_end|>\n",
            "rejected": row["bad"] + "<|im_end|>\n",
        }

    return fn


def load(path):
    return AutoModelForCausalLM.from_pretrained(
        path,
        torch_dtype=torch.bfloat16,
        device_map="auto",
        trust_remote_code=True,
        attn_implementation="sdpa",
    )


def main():
    parser = TrlParser((ScriptArgs, DPOConfig))
    script, args = parser.parse_args_and_config()
    tok = AutoTokenizer.from_pretrained(script.model_path, trust_remote_code=True)

    ds = load_dataset("json", data_files=script.pairs, split="train")
    ds = ds.map(to_strings(tok), remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=0.02, seed=args.seed)

    policy = load(script.model_path)
    reference = load(script.model_path)
    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        tokenizer=tok,
    )
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
