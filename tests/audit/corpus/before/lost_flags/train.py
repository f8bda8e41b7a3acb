import argparse
import os

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--global_batch", type=int, default=64)
parser.add_argument("--lr", type=float, default=2e-5)
args = parser.parse_args()

world = int(os.environ.get("WORLD_SIZE", 1))
accumulation = args.global_batch // args.batch_size

config = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=args.batch_size,
    gradient_accumulation_steps=accumulation,
    learning_rate=args.lr,
    bf16=True,
    logging_steps=10,
    optim="adamw_torch_fused",
)
SFTTrainer(args.model, args=config, train_dataset=load_dataset("json", data_files="d.jsonl", split="train")).train()
