import fire
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer

LORA = dict(
    task_type="CAUSAL_LM",
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules="all-linear",
)
LENGTHS = dict(max_length=1024, max_prompt_length=2048)


def load_policy(name):
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
    )
    return AutoModelForCausalLM.from_pretrained(
        name, quantization_config=quant, device_map={"": 0}, attn_implementation="sdpa"
    )


def main(
    data: str = "prefs.jsonl",
    output_dir: str = "outputs/quill",
    model: str = "Qwen/Qwen3-8B",
    beta: float = 0.1,
    lr: float = 5e-6,
):
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy = load_policy(model)
    ref = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, device_map={"": 0})

    args = DPOConfig(
        output_dir=output_dir,
        beta=beta,
        **LENGTHS,
        force_use_ref_model=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=16,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        bf16=True,
        optim="paged_adamw_8bit",
        dataloader_num_workers=16,
        logging_steps=10,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        report_to="none",
        seed=3,
    )
    trainer = DPOTrainer(
        model=policy,
        ref_model=ref,
        args=args,
        train_dataset=load_dataset("json", data_files=data, split="train"),
        processing_class=tokenizer,
        peft_config=LoraConfig(**LORA),
    )
    trainer.train()
    trainer.save_model(output_dir)


if __name__ == "__main__":
    fire.Fire(main)
