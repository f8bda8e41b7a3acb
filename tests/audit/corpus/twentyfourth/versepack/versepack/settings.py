import os

MODEL_ID = os.environ.get("VERSE_MODEL", "Qwen/Qwen2.5-0.5B")
OUT = os.environ.get("VERSE_OUT", "out/verse")
BLOCK = 4096

TRAINER = dict(
    per_device_train_batch_size=1,
    gradient_accumulation_steps=32,
    num_train_epochs=3,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    optim="adamw_torch_fused",
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    dataloader_num_workers=8,
    dataloader_pin_memory=True,
    logging_steps=2,
    save_strategy="epoch",
    save_total_limit=2,
    seed=5,
    report_to="none",
)
