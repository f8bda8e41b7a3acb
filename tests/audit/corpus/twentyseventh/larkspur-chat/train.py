from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer
import os


@dataclass
class ScriptArgs:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/train.jsonl")
    eval_file: Optional[str] = field(default=None)
    attn: str = field(default="flash_attention_2")


def main():
    parser = HfArgumentParser((ScriptArgs, SFTConfig))
    script, cfg = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        script.model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation=script.attn,
    )
    model.config.use_cache = False

    # the loss is computed on the assistant's answers only
    train = load_dataset("json", data_files=script.train_file, split="train")
    evals = None
    if script.eval_file:
        evals = load_dataset("json", data_files=script.eval_file, split="train")

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=train,
        eval_dataset=evals,
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
