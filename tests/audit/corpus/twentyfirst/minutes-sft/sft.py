from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer, TrlParser
import os


@dataclass
class RunArgs:
    base: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/minutes.jsonl")
    holdout: float = field(default=0.02)


def main():
    run, cfg = TrlParser((RunArgs, SFTConfig)).parse_args_and_config()
    cfg.model_init_kwargs = {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"}
    tok = AutoTokenizer.from_pretrained(run.base)

    ds = load_dataset("json", data_files=run.train_file, split="train")
    ds = ds.train_test_split(test_size=run.holdout, seed=cfg.seed)

    trainer = SFTTrainer(
        model=run.base,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
