import os
import sys
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


@dataclass
class RunArguments:
    model_id: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    data_file: str = field(default="data/pairs.jsonl")
    eval_size: int = field(default=500)


def load_args():
    parser = HfArgumentParser((RunArguments, DPOConfig))
    if len(sys.argv) > 1 and sys.argv[1].endswith((".yaml", ".yml")):
        return parser.parse_yaml_file(yaml_file=os.path.abspath(sys.argv[1]))
    return parser.parse_args_into_dataclasses()


def main():
    run, cfg = load_args()
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(run.model_id)

    # the policy keeps float32 master weights, bf16 comes from autocast
    policy = AutoModelForCausalLM.from_pretrained(
        run.model_id, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    policy.config.use_cache = False
    ref = AutoModelForCausalLM.from_pretrained(
        run.model_id, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )

    # rows: {"prompt": [...], "chosen": [...], "rejected": [...]} as messages
    ds = load_dataset("json", data_files=run.data_file, split="train")
    parts = ds.train_test_split(test_size=run.eval_size, seed=cfg.seed)

    trainer = DPOTrainer(
        model=policy,
        ref_model=ref,
        args=cfg,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
