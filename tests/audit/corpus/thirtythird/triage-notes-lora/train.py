import os

from datasets import load_dataset
from peft import LoraConfig
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
OUT = "out/triage"
SYSTEM = "Give the triage level (1-5) and one sentence of reason."


def to_pair(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["note"]},
        ],
        "completion": [{"role": "assistant", "content": f"Level {row['level']}. {row['reason']}"}],
    }


def main():
    data = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
    data = data.map(to_pair, remove_columns=data["train"].column_names)

    config = SFTConfig(
        output_dir=OUT,
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
        max_length=4096,
        packing=True,
        packing_strategy="bfd",
        eval_packing=False,
        completion_only_loss=True,
        dataset_num_proc=8,
        num_train_epochs=3,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_torch_fused",
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="steps",
        save_steps=50,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        torch_empty_cache_steps=200,
        report_to=["tensorboard"],
        seed=17,
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["val"],
        peft_config=lora,
    )
    last = get_last_checkpoint(OUT) if os.path.isdir(OUT) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(f"{OUT}/best")


if __name__ == "__main__":
    main()
