import os

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = os.environ.get("BASE_MODEL", "Qwen/Qwen2.5-0.5B-Instruct")
OUT = os.environ.get("OUT_DIR", "out/qwen-dpo")
RESUME = os.environ.get("RESUME_FROM") or None


def load_model():
    return AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa")


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = load_model()
    ref_model = load_model()

    data = load_dataset("trl-lib/ultrafeedback_binarized")

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        loss_type="sigmoid",
        max_length=1024,
        max_prompt_length=512,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=1e-6,
        lr_scheduler_type="linear",
        warmup_ratio=0.1,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=True,
        optim="adamw_torch_fused",
        dataset_num_proc=8,
        dataloader_num_workers=2,
        eval_strategy="steps",
        eval_steps=500,
        save_steps=500,
        save_total_limit=2,
        logging_steps=25,
        report_to="tensorboard",
        seed=17,
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=RESUME)
    trainer.save_model(OUT)


if __name__ == "__main__":
    main()
