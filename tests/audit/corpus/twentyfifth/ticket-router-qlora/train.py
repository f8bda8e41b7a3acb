import os

import fire
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

LORA_TARGETS = [
    "q_proj", "k_proj", "v_proj", "o_proj",
    "gate_proj", "up_proj", "down_proj",
    "lm_head",
]


def main(
    model_name="mistralai/Mistral-7B-Instruct-v0.3",
    data="tickets.jsonl",
    output_dir="out/router",
    max_length=1024,
    batch_size=2,
    grad_accum=8,
    lr=2e-4,
    epochs=2,
    deepspeed=None,
    resume=False,
    **kwargs,
):
    args = SFTConfig(
        output_dir=output_dir,
        max_length=max_length,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=grad_accum,
        learning_rate=lr,
        num_train_epochs=epochs,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        use_liger_kernel=True,
        deepspeed=deepspeed,
        logging_steps=20,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
        seed=42,
    )

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(
        model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
        ),
        device_map={"": int(os.environ.get("LOCAL_RANK", 0))},
    )
    ds = load_dataset("json", data_files=data, split="train")

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"
        ),
    )
    trainer.train(resume_from_checkpoint=resume or None)
    trainer.save_model(output_dir)


if __name__ == "__main__":
    fire.Fire(main)
