"""DPO with LoRA. Everything that matters is in the YAML file given by --config."""
import argparse
import os

import torch
import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer

# keys of the YAML file that belong to the trainer
TRAINER_KEYS = (
    "output_dir",
    "loss_type",
    "precompute_ref_log_probs",
    "max_seq_length",
    "num_train_epochs",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_ratio",
    "optim",
    "bf16",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "logging_steps",
    "save_strategy",
    "save_steps",
    "save_total_limit",
    "seed",
)


def flatten(row, tokenizer):
    """Messages to the three strings that the trainer of this version wants."""
    prompt = tokenizer.apply_chat_template(row["chosen"][:-1], tokenize=False, add_generation_prompt=True)
    # DPOTrainer puts the BOS token in front by itself
    prompt = prompt.removeprefix(tokenizer.bos_token)
    end = "<|eot_id|>"
    return {
        "prompt": prompt,
        "chosen": row["chosen"][-1]["content"] + end,
        "rejected": row["rejected"][-1]["content"] + end,
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", required=True)
    with open(p.parse_args().config) as f:
        cfg = yaml.safe_load(f)
    set_seed(cfg["seed"])

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        cfg["model"], torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    data = load_dataset(cfg["dataset"], split="train")
    data = data.map(
        flatten, fn_kwargs={"tokenizer": tokenizer}, remove_columns=data.column_names, num_proc=8
    )

    args = DPOConfig(
        **{k: cfg[k] for k in TRAINER_KEYS if k in cfg},
        remove_unused_columns=False,
        dataloader_num_workers=4,
        dataset_num_proc=8,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=data,
        tokenizer=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cfg["lora"]),
    )
    out = cfg["output_dir"]
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out)


if __name__ == "__main__":
    main()
