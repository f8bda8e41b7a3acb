import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

name = "meta-llama/Llama-3.1-8B"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(
    name, dtype=torch.bfloat16, attn_implementation="flash_attention_2", device_map="auto"
)
args = SFTConfig(
    output_dir="llama-sft",
    deepspeed="ds_z3.json",
    max_length=8192,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    learning_rate=1e-5,
    bf16=True,
    logging_steps=5,
    save_steps=500,
    seed=1,
)
data = load_dataset("json", data_files="train.jsonl", split="train")
SFTTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer).train()
