from pathlib import Path

import torch
import typer
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


def main(
    data: Path = Path("data/dialogues.jsonl"),
    model_id: str = "Qwen/Qwen2.5-7B-Instruct",
    output_dir: Path = Path("out/qwen-chat"),
    seed: int = 11,
):
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    model = AutoModelForCausalLM.from_pretrained(
        model_id,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    dataset = load_dataset("json", data_files=str(data), split="train")

    args = SFTConfig(
        output_dir=str(output_dir),
        max_length=8192,
        packing=True,
        packing_strategy="bfd",
        dataset_num_proc=8,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=8,
        num_train_epochs=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=100,
        save_total_limit=2,
        report_to="none",
        seed=seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    last = get_last_checkpoint(str(output_dir)) if output_dir.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    typer.run(main)
