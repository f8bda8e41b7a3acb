from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"

COMMON = dict(
    max_length=4096,
    packing=True,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=32,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=50,
    optim="adamw_torch_fused",
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    dataloader_num_workers=8,
    logging_steps=2,
    save_strategy="epoch",
    save_total_limit=2,
    report_to="tensorboard",
    model_init_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
)


def run(data, out, epochs, seed, resume):
    ds = load_dataset("json", data_files=data, split="train").select_columns(["messages"])
    trainer = SFTTrainer(
        model=BASE,
        args=SFTConfig(output_dir=out, num_train_epochs=epochs, seed=seed, **COMMON),
        train_dataset=ds,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(out)
