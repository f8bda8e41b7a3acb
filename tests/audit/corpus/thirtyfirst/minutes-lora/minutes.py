"""LoRA for writing meeting minutes from transcripts.

Rows are {"transcript": str, "minutes": str}. The loss is taken on the minutes only, which TRL does by itself
for prompt/completion data.
"""
from argparse import ArgumentParser
from pathlib import Path

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

INSTRUCTION = "Write the minutes of this meeting: decisions, open points, who does what by when."


def as_chat(row):
    return {
        "prompt": [{"role": "user", "content": f"{INSTRUCTION}\n\n{row['transcript']}"}],
        "completion": [{"role": "assistant", "content": row["minutes"]}],
    }


def main():
    ap = ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--out", default="out/minutes")
    ap.add_argument("--epochs", type=float, default=3)
    ap.add_argument("--lr", type=float, default=1e-4)
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.base)
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "valid": "data/valid.jsonl"})
    ds = ds.map(as_chat, remove_columns=["transcript", "minutes"], num_proc=8)

    cfg = SFTConfig(
        output_dir=a.out,
        # no device_map: every process holds its own copy of the model
        model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "sdpa"},
        # p99 of prompt plus completion is 5.1k tokens
        max_length=6144,
        dataset_num_proc=8,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        dataloader_num_workers=2,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        seed=88,
        report_to="tensorboard",
    )
    trainer = SFTTrainer(
        model=a.base,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear",
                               task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(a.out) if Path(a.out).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
