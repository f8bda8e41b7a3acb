#!/bin/bash
set -euo pipefail

accelerate launch --config_file accelerate_config.yaml train.py \
    --model_name_or_path Qwen/Qwen2.5-0.5B \
    --train_file data/instruct.jsonl \
    --output_dir runs/instruct \
    --per_device_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --num_epochs 2
