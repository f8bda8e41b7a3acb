#!/usr/bin/env bash
# bf16 on 8x H100; 61k pairs, about 5 h
set -euo pipefail

accelerate launch \
    --num_machines 1 \
    --num_processes 8 \
    --multi_gpu \
    --mixed_precision bf16 \
    --dynamo_backend no \
    -m prefopt.train \
    --model_name_or_path Qwen/Qwen2.5-3B-Instruct \
    --dataset_path data/ultra_pairs.jsonl \
    --max_seq_length 1536 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --num_train_epochs 3 \
    --learning_rate 5e-7 \
    --beta 0.1 \
    --output_dir "${1:-output/dpo_3b}"
