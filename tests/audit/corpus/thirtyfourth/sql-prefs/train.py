import sys

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-Coder-3B-Instruct"


def main(pairs, out):
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16", attn_implementation="sdpa")
    model.config.use_cache = False

    data = load_dataset("json", data_files={k: f"{pairs}/{k}.jsonl" for k in ("train", "eval")})

    config = DPOConfig(
        output_dir=out,
        beta=0.1,
        max_length=2048,
        max_prompt_length=1536,
        precompute_ref_log_probs=True,
        precompute_ref_batch_size=8,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        max_grad_norm=1.0,
        bf16=True,
        optim="adamw_torch_fused",
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_rewards/accuracies",
        greater_is_better=True,
        dataset_num_proc=8,
        dataloader_num_workers=2,
        report_to="none",
        seed=13,
    )
    trainer = DPOTrainer(
        model=model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.0,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model(f"{out}/final")
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main(*sys.argv[1:3])
