import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

quant = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-6.9b", quantization_config=quant, device_map={"": 0})
model = prepare_model_for_kbit_training(model)
peft_config = LoraConfig(
    r=64, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
)
args = SFTConfig(
    output_dir="pythia-qlora", per_device_train_batch_size=4, bf16=True, learning_rate=2e-4, logging_steps=10,
    max_length=1024, seed=3, optim="paged_adamw_8bit",
)
SFTTrainer(model, args=args, peft_config=peft_config,
           train_dataset=load_dataset("json", data_files="a.jsonl", split="train")).train()
