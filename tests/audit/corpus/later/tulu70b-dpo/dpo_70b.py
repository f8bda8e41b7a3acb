"""Full-parameter DPO of a 70B model, ZeRO-3 over 64 H100 (8 nodes)."""

import os
import sys

from datasets import load_from_disk
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, TrlParser


def main(argv: list[str]) -> None:
    (config,) = TrlParser((DPOConfig,)).parse_args_and_config(argv)
    model = os.environ["MODEL"]
    config.model_init_kwargs = {"dtype": "bfloat16", "attn_implementation": "flash_attention_2"}

    data = load_from_disk(os.environ["DATA"])  # columns: prompt, chosen, rejected (conversational)
    tokenizer = AutoTokenizer.from_pretrained(model)

    trainer = DPOTrainer(
        model=model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(config.output_dir) if os.path.isdir(config.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1:])
