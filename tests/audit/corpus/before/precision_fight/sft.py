from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

config = SFTConfig(
    output_dir="out",
    max_length=2048,
    per_device_train_batch_size=4,
    learning_rate=2e-5,
    bf16=True,
    num_train_epochs=2,
    logging_steps=10,
    optim="adamw_torch_fused",
    seed=7,
)
trainer = SFTTrainer("Qwen/Qwen2.5-3B", args=config, train_dataset=load_dataset("trl-lib/Capybara", split="train"))
trainer.train()
