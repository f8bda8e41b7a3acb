"""Packed SFT on recipes. Needs Ampere or newer (FlashAttention 2 keeps the packed rows apart)."""
import os
from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer, TrlParser

NO_FLASH = os.environ.get("NO_FLASH") == "1"


@dataclass
class Extra:
    model_id: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/recipes.jsonl")


def main():
    extra, cfg = TrlParser((Extra, SFTConfig)).parse_args_and_config()
    cfg.model_init_kwargs = {
        "torch_dtype": "bfloat16",
        "attn_implementation": "sdpa" if NO_FLASH else "flash_attention_2",
        "use_cache": False,
    }
    if NO_FLASH:  # dense masks cannot keep packed rows apart
        cfg.packing = False

    tok = AutoTokenizer.from_pretrained(extra.model_id)
    ds = load_dataset("json", data_files=extra.train_file, split="train")
    ds = ds.select_columns(["messages"])

    trainer = SFTTrainer(model=extra.model_id, args=cfg, train_dataset=ds, processing_class=tok)
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
