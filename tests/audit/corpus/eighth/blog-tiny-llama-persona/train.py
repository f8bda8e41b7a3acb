import argparse

from datasets import load_from_disk
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

ap = argparse.ArgumentParser()
ap.add_argument("--data", default="prepared/")
ap.add_argument("--out", default="keeper-lora")
ap.add_argument("--epochs", type=float, default=3)
ap.add_argument("--lr", type=float, default=2e-4)
cli = ap.parse_args()

BASE = "meta-llama/Llama-3.2-1B-Instruct"

data = load_from_disk(cli.data)
print(data)

tokenizer = AutoTokenizer.from_pretrained(BASE)
# a pad token of its own, else <|eot_id|> would vanish from the loss
tokenizer.pad_token = "<|finetune_right_pad_id|>"

config = SFTConfig(
    output_dir=cli.out,
    num_train_epochs=cli.epochs,
    learning_rate=cli.lr,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    # effective batch of 32
    per_device_train_batch_size=1,
    gradient_accumulation_steps=32,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    bf16=True,
    max_seq_length=512,
    dataset_text_field="text",
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
    optim="adamw_torch_fused",
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    seed=11,
    report_to="none",
)

lora = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.0,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

trainer = SFTTrainer(
    model=BASE,
    args=config,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tokenizer,
    peft_config=lora,
)
trainer.model.print_trainable_parameters()
trainer.train()
trainer.save_model(cli.out)
print("peak", trainer.accelerator.device, __import__("torch").cuda.max_memory_allocated() / 2**30, "GiB")
