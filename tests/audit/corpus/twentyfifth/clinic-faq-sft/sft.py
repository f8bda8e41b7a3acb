"""SFT of Qwen2.5-1.5B-Instruct on a clinic's FAQ. One GPU: python sft.py; several: accelerate launch sft.py"""
import argparse
import os

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

p = argparse.ArgumentParser()
p.add_argument("--data", default="faq.jsonl")
p.add_argument("--out", default="out/faq")
p.add_argument("--epochs", type=float, default=3)
p.add_argument("--lr", type=float, default=1e-5)
a = p.parse_args()

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
SEED = 17

# <|endoftext|> pads and <|im_end|> ends a turn, so padding can be masked without losing the end of the answer.
tokenizer = AutoTokenizer.from_pretrained(MODEL)
assert tokenizer.pad_token_id != tokenizer.eos_token_id

# fp32 weights: full fine-tuning at 1e-5 would lose small updates in bf16. bf16=True below autocasts the maths.
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")


def to_pair(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


ds = load_dataset("json", data_files=a.data, split="train")
ds = ds.map(to_pair, remove_columns=ds.column_names)
ds = ds.train_test_split(test_size=0.05, seed=SEED)

args = SFTConfig(
    output_dir=a.out,
    max_length=1024,
    packing=False,
    completion_only_loss=True,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    gradient_accumulation_steps=1,
    gradient_checkpointing=False,
    num_train_epochs=a.epochs,
    learning_rate=a.lr,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    optim="adamw_torch_fused",
    bf16=True,
    group_by_length=True,
    dataloader_num_workers=0,
    logging_steps=20,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=2,
    report_to="tensorboard",
    seed=SEED,
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    processing_class=tokenizer,
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(a.out) if os.path.isdir(a.out) else None)
trainer.save_model(a.out)
