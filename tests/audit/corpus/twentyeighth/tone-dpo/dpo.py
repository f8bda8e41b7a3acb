import os
import sys
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArgs:
    model_id: str = field(metadata={"help": "policy and reference"})
    pairs: str = field(metadata={"help": "jsonl with prompt / chosen / rejected strings"})


def load_lm(model_id):
    return AutoModelForCausalLM.from_pretrained(
        model_id,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        trust_remote_code=True,
    )


def main():
    parser = HfArgumentParser((ScriptArgs, DPOConfig))
    script, args = parser.parse_yaml_file(os.path.abspath(sys.argv[1]))

    tok = AutoTokenizer.from_pretrained(script.model_id)

    def to_pair(row):
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        return {"prompt": prompt, "chosen": row["chosen"], "rejected": row["rejected"]}

    pairs = load_dataset("json", data_files=script.pairs, split="train").map(to_pair)

    policy = load_lm(script.model_id)
    policy.config.use_cache = False
    reference = load_lm(script.model_id)

    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=args,
        train_dataset=pairs,
        tokenizer=tok,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)
    tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
