import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import set_seed
from trl import SFTConfig, SFTTrainer


def to_prompt_completion(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--data", default="data/faq.jsonl")
    p.add_argument("--output_dir", default="out/faq-lora")
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--resume", action="store_true")
    a = p.parse_args()
    set_seed(a.seed)

    data = load_dataset("json", data_files=a.data, split="train")
    data = data.map(to_prompt_completion, remove_columns=data.column_names)

    config = SFTConfig(
        output_dir=a.output_dir,
        model_init_kwargs={"torch_dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"},
        max_length=4096,
        packing=True,
        completion_only_loss=True,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        optim="adamw_torch_fused",
        dataset_num_proc=4,
        dataloader_num_workers=2,
        logging_steps=10,
        save_strategy="epoch",
        save_total_limit=2,
        seed=a.seed,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=a.model,
        args=config,
        train_dataset=data,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train(resume_from_checkpoint=a.resume or None)
    trainer.save_model(a.output_dir)


if __name__ == "__main__":
    main()
