"""Trains; five of its settings do something else than its author thinks. `dynotune audit --project examples/trl-script`."""

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", device_map="auto")
args = SFTConfig(
    output_dir="out",
    max_seq_length=2048,
    packing=True,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    num_train_epochs=3,
    optim="adamw_torch",
    bf16=True,
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=load_dataset("json", data_files="sums.jsonl.gz", split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
)
trainer.train()
trainer.save_model()
