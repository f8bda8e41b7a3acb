from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from .games import load
from .plan import accumulation


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("experiment", type=Path)
    ex = tomllib.loads(ap.parse_args().experiment.read_text())
    m, d, t = ex["model"], ex["data"], ex["train"]

    train, dev = load(d["games"], d["holdout_events"])
    tok = AutoTokenizer.from_pretrained(m["name"], revision=m["revision"])
    # bf16 base under a LoRA: the base is frozen, the adapter itself is fp32
    model = AutoModelForCausalLM.from_pretrained(
        m["name"], revision=m["revision"], dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )

    args = SFTConfig(
        output_dir=t["out"],
        max_length=t["row_tokens"],
        packing=True,
        eval_packing=False,
        assistant_only_loss=True,
        per_device_train_batch_size=t["rows_per_gpu"],
        per_device_eval_batch_size=t["rows_per_gpu"],
        gradient_accumulation_steps=accumulation(t["rows_per_update"], t["rows_per_gpu"]),
        num_train_epochs=t["epochs"],
        learning_rate=t["lr"],
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        bf16=True,
        gradient_checkpointing=True,
        ddp_find_unused_parameters=False,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=50,
        save_total_limit=2,
        logging_steps=5,
        dataset_num_proc=8,
        seed=t["seed"],
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tok,
        peft_config=LoraConfig(r=m["rank"], lora_alpha=2 * m["rank"], target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(t["out"]) if Path(t["out"]).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
