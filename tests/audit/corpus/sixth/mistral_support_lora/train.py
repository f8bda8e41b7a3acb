"""LoRA SFT of Mistral-7B on our support tickets.

    bash run.sh configs/mistral_7b.yaml
"""
import argparse
import os

import torch
import yaml
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from data_utils import build_datasets


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--config", required=True)
    p.add_argument("--output_dir", default=None, help="overrides the one in the config")
    return p.parse_args()


def load_model_and_tokenizer(cfg):
    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        cfg["model"],
        torch_dtype=torch.bfloat16,
        attn_implementation=cfg.get("attn", "sdpa"),
        device_map="auto",
        trust_remote_code=True,
    )
    model.config.use_cache = False
    return model, tokenizer


def main():
    args = parse_args()
    with open(args.config) as f:
        cfg = yaml.safe_load(f)
    set_seed(cfg["seed"])
    out = args.output_dir or cfg["output_dir"]

    model, tokenizer = load_model_and_tokenizer(cfg)
    train_ds, eval_ds = build_datasets(cfg["train_file"], tokenizer, cfg["eval_fraction"])

    peft_config = LoraConfig(
        r=cfg["lora"]["r"],
        lora_alpha=cfg["lora"]["alpha"],
        lora_dropout=cfg["lora"]["dropout"],
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    sft_args = SFTConfig(
        output_dir=out,
        dataset_text_field="text",
        max_seq_length=cfg["max_seq_length"],
        dataset_num_proc=8,
        per_device_train_batch_size=cfg["per_device_batch"],
        per_device_eval_batch_size=cfg["per_device_batch"],
        gradient_accumulation_steps=cfg["grad_accum"],
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        num_train_epochs=cfg["epochs"],
        learning_rate=cfg["lr"],
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_torch_fused",
        bf16=True,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=200,
        save_total_limit=3,
        seed=cfg["seed"],
        report_to="wandb",
    )

    trainer = SFTTrainer(
        model=model,
        args=sft_args,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out)


if __name__ == "__main__":
    main()
