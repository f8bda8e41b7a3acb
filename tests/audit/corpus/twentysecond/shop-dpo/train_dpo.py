import fire
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def run(
    model_name: str = "Qwen/Qwen2.5-3B-Instruct",
    train_file: str = "pairs.jsonl",
    output_dir: str = "out/shop-dpo",
    beta: float = 0.1,
    lr: float = 5e-6,
    epochs: int = 2,
    batch: int = 4,
    accum: int = 4,
    max_length: int = 1536,
    seed: int = 42,
    resume: bool = False,
):
    """Direct preference optimisation on shop-assistant answers (one GPU)."""
    tokenizer = AutoTokenizer.from_pretrained(model_name)
    model = AutoModelForCausalLM.from_pretrained(
        model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )
    model.config.use_cache = False

    # columns: prompt, chosen, rejected, each a list of chat messages
    ds = load_dataset("json", data_files=train_file, split="train")

    cfg = DPOConfig(
        output_dir=output_dir,
        beta=beta,
        learning_rate=lr,
        num_train_epochs=epochs,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accum,
        max_length=max_length,
        max_prompt_length=1024,
        precompute_ref_log_probs=True,
        precompute_ref_batch_size=8,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        dataset_num_proc=8,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        seed=seed,
        report_to="none",
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=cfg,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(output_dir)


if __name__ == "__main__":
    fire.Fire(run)
