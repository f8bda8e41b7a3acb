import argparse

import torch
import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def get_args():
    ap = argparse.ArgumentParser(description="DPO on helpdesk preferences")
    ap.add_argument("--config", type=str, required=True)
    ap.add_argument("--resume", type=str, default=None, help="checkpoint to resume from")
    return ap.parse_args()


def load_policy(cfg):
    return AutoModelForCausalLM.from_pretrained(
        cfg["name"],
        dtype=getattr(torch, cfg["dtype"]),
        device_map="auto",
    )


def load_reference(cfg):
    ref = AutoModelForCausalLM.from_pretrained(cfg["name"])
    ref.eval()
    for p in ref.parameters():
        p.requires_grad_(False)
    return ref


def main():
    args = get_args()
    with open(args.config) as fh:
        cfg = yaml.safe_load(fh)

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"]["name"])
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    model = load_policy(cfg["model"])
    ref_model = load_reference(cfg["model"])

    train_dataset = load_dataset("json", data_files=cfg["data"]["train_file"], split="train")
    training_args = DPOConfig(**cfg["training"])

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=training_args,
        train_dataset=train_dataset,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
