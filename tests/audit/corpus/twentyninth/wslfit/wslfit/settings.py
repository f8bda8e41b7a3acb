MODEL = "Qwen/Qwen2.5-0.5B"
MAX_LEN = 1024

LORA = dict(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
)

TRAINING = dict(
    num_train_epochs=2,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=32,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": True},
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    optim="adamw_torch_fused",
    dataloader_num_workers=12,
    dataloader_persistent_workers=True,
    logging_steps=20,
    save_strategy="epoch",
    report_to="none",
    seed=99,
)
