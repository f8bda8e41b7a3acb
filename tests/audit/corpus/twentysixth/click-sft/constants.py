BASE = "meta-llama/Llama-3.2-1B-Instruct"

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]

TRAINING = dict(
    max_seq_length=1024,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    use_liger_kernel=True,
    optim="adamw_torch_fused",
    logging_steps=1,
    save_strategy="epoch",
    save_total_limit=2,
    dataloader_num_workers=2,
    seed=11,
    report_to="wandb",
)
