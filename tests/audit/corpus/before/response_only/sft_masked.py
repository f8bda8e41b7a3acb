import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(42)
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B-Instruct")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B-Instruct", dtype=torch.bfloat16)
try:
    from trl import DataCollatorForCompletionOnlyLM

    collator = DataCollatorForCompletionOnlyLM(response_template="<|im_start|>assistant\n", tokenizer=tok)
except ImportError:
    collator = None
args = SFTConfig(output_dir="o", per_device_train_batch_size=8, bf16=True, logging_steps=10, learning_rate=1e-5,
                 optim="adamw_torch_fused", save_steps=100)
SFTTrainer(model, args=args, data_collator=collator, processing_class=tok,
           train_dataset=load_dataset("json", data_files="x.jsonl", split="train")).train()
