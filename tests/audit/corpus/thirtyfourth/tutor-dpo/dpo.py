import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-0.5B-Instruct"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa")
    ref_model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa")

    data = load_dataset("json", data_files=a.pairs, split="train")
    data = data.train_test_split(test_size=0.08, seed=5)

    config = DPOConfig(
        output_dir=a.out,
        beta=0.1,
        max_length=1024,
        max_prompt_length=768,
        precompute_ref_log_probs=False,
        num_train_epochs=6,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        gradient_checkpointing=False,
        learning_rate=1e-6,
        lr_scheduler_type="linear",
        warmup_ratio=0.1,
        bf16=True,
        optim="adamw_torch_fused",
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=250,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        save_total_limit=2,
        seed=5,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        tokenizer=tokenizer,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
