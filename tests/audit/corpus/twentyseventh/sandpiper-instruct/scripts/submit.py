import os
import subprocess
import sys

import yaml

NUM_GPUS = 8


def build(cfg):
    world = int(os.environ.get("WORLD_SIZE", 1))
    accum = cfg["total_batch_size"] // (cfg["per_device_train_batch_size"] * world)
    return (
        f"accelerate launch --multi_gpu --num_machines 1 --num_processes {NUM_GPUS} --mixed_precision bf16 finetune.py"
        f" --model_name_or_path {cfg['model_name_or_path']}"
        f" --train_file {cfg['train_file']}"
        f" --output_dir {cfg['output_dir']}"
        f" --per_device_train_batch_size {cfg['per_device_train_batch_size']}"
        f" --gradient_accumulation_steps {accum}"
        f" --learning_rate {cfg['learning_rate']}"
        f" --lr_scheduler_type {cfg['lr_scheduler_type']}"
        f" --num_train_epochs {cfg['num_train_epochs']}"
        f" --seed {cfg['seed']}"
    )


if __name__ == "__main__":
    with open(sys.argv[1]) as fh:
        command = build(yaml.safe_load(fh))
    print(command)
    subprocess.run(command, shell=True, check=True)
