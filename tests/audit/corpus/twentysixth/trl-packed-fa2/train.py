import os
import sys

import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    args = SFTConfig(
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2", "use_cache": False},
        **cfg["sft"],
    )
    set_seed(args.seed)
    # rows: {"text": ...}; the trainer appends the end-of-sequence token
    data = load_dataset("json", data_files=cfg["data"], split="train").select_columns(["text"])
    trainer = SFTTrainer(model=cfg["model"], args=args, train_dataset=data, peft_config=LoraConfig(**cfg["lora"]))
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1])
