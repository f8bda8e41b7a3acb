import os

import click
import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


def load_policy_and_reference(name):
    common = dict(attn_implementation="sdpa", device_map="auto")
    policy = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32, **common)
    reference = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, **common)
    policy.config.use_cache = False
    return policy, reference


def build_dataset(cfg, tokenizer):
    ds = load_dataset("json", data_files=cfg.path, split="train")

    def to_text(row):
        turns = [{"role": "user", "content": row["question"]}]
        return {
            "prompt": tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True),
            "chosen": row["good"],
            "rejected": row["bad"],
        }

    ds = ds.map(to_text, remove_columns=ds.column_names)
    return ds.train_test_split(test_size=cfg.eval_ratio, seed=cfg.seed)


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True))
@click.option("--fresh", is_flag=True, help="ignore checkpoints in the output folder")
def main(config, fresh):
    cfg = OmegaConf.load(config)
    args = DPOConfig(**OmegaConf.to_container(cfg.training, resolve=True))

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    data = build_dataset(cfg.data, tokenizer)
    policy, reference = load_policy_and_reference(cfg.model.name)

    trainer = DPOTrainer(
        policy,
        reference,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        tokenizer=tokenizer,
    )

    last = None
    if not fresh and os.path.isdir(args.output_dir):
        last = get_last_checkpoint(args.output_dir)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
