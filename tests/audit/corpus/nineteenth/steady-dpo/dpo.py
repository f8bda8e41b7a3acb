from pathlib import Path

import torch
import typer
from accelerate import PartialState
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"
COMMON = dict(
    bf16=True,
    optim="adamw_torch_fused",
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    save_total_limit=2,
    report_to="none",
    seed=42,
)


def main(pairs: Path, out: Path = Path("runs/steady"), beta: float = 0.1, lr: float = 5e-6, resume: bool = False):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": PartialState().local_process_index},
    )
    model.config.use_cache = False

    data = load_dataset("json", data_files=str(pairs), split="train")
    data = data.train_test_split(test_size=0.02, seed=42)

    args = DPOConfig(
        output_dir=str(out),
        beta=beta,
        learning_rate=lr,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_prompt_length=1024,
        max_length=2048,
        precompute_ref_log_probs=True,
        precompute_ref_batch_size=8,
        dataset_num_proc=8,
        dataloader_num_workers=2,
        **COMMON,
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(str(out))


if __name__ == "__main__":
    typer.run(main)
