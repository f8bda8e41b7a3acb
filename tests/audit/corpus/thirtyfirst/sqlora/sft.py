"""QLoRA fine-tuning of Llama-3.2-3B-Instruct for text-to-SQL."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

from prompts import to_messages

BASE = "meta-llama/Llama-3.2-3B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"


def render(row):
    return {"text": tokenizer.apply_chat_template(to_messages(row), tokenize=False)}


data = load_dataset("json", data_files={"train": "data/train.jsonl", "dev": "data/dev.jsonl"})
data = data.map(render, num_proc=8, remove_columns=["schema", "question", "sql"])

quant = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
lora = LoraConfig(
    r=32,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    task_type="CAUSAL_LM",
)
config = SFTConfig(
    output_dir="out/sqlora-3b",
    model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "sdpa"},
    max_length=2048,
    packing=True,
    group_by_length=True,
    dataset_num_proc=8,
    num_train_epochs=2,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=0.03,
    optim="paged_adamw_8bit",
    activation_checkpointing=True,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=200,
    save_steps=200,
    save_total_limit=2,
    seed=7,
    report_to="none",
)

trainer = SFTTrainer(
    model=BASE,
    args=config,
    train_dataset=data["train"],
    eval_dataset=data["dev"],
    processing_class=tokenizer,
    peft_config=lora,
    quantization_config=quant,
)
trainer.train()
trainer.save_model()
