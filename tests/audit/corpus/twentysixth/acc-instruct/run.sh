#!/bin/bash
# 4x A100-80G, bf16 (see accelerate_config.yaml)
accelerate launch --config_file accelerate_config.yaml finetune.py \
    --model_name Qwen/Qwen2.5-1.5B \
    --data_file data/instruct.jsonl \
    --output_dir out/qwen-instruct \
    --per_device_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --epochs 3
