import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

base = "mistralai/Mistral-7B-Instruct-v0.2"
tokenizer = AutoTokenizer.from_pretrained(base)
tokenizer.pad_token = tokenizer.eos_token

model = AutoModelForCausalLM.from_pretrained(base)
ref_model = AutoModelForCausalLM.from_pretrained(base)

dataset = load_dataset("json", data_files="pairs.jsonl", split="train")

args = DPOConfig(
    output_dir="dpo-mistral",
    per_device_train_batch_size=1,
    gradient_accumulation_steps=16,
    learning_rate=2e-4,
    beta=0.1,
    bf16=True,
    num_train_epochs=1,
    logging_steps=10,
    save_steps=200,
    gradient_checkpointing=True,
)
trainer = DPOTrainer(
    model=model,
    ref_model=ref_model,
    args=args,
    train_dataset=dataset,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("dpo-mistral/final")
