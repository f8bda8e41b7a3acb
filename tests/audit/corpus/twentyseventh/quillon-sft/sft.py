import os
from dataclasses import dataclass

from datasets import load_dataset
from transformers import HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


@dataclass
class Data:
    train_file: str = "pairs.jsonl"
    base: str = "Qwen/Qwen2.5-3B-Instruct"


def main():
    data, cfg = HfArgumentParser((Data, SFTConfig)).parse_yaml_file("sft.yaml")
    # best-fit packing; FlashAttention keeps the packed examples apart by position_ids
    cfg.model_init_kwargs = {"dtype": "bfloat16", "attn_implementation": "flash_attention_2"}
    ds = load_dataset("json", data_files=data.train_file, split="train")
    trainer = SFTTrainer(model=data.base, args=cfg, train_dataset=ds)
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
