"""Somebody's script for TRL, as its documentation has it: `sft.py MODEL FOLDER [packed]`."""

import sys

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

stories = [{"text": "Once upon a time there was a little dog who liked to run. " * (1 + i % 4)} for i in range(400)]
trainer = SFTTrainer(
    model=sys.argv[1],
    args=SFTConfig(
        output_dir=sys.argv[2], max_steps=60, per_device_train_batch_size=4, logging_steps=5, save_strategy="no",
        report_to="none", use_cpu=True, bf16=False, max_length=128, packing="packed" in sys.argv, disable_tqdm=True,
    ),
    train_dataset=Dataset.from_list(stories),
)  # fmt: skip
trainer.train()
trainer.save_model(sys.argv[2])
