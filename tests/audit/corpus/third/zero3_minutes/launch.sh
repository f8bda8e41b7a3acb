#!/usr/bin/env bash
# 8x A100-80G
set -euo pipefail

ARGS=(
    --train_file data/minutes.jsonl
    --max_tokens 4096
    --output_dir runs/minutes-7b
    --deepspeed configs/zero3.json
    --bf16 true
    --per_device_train_batch_size 4
    --gradient_accumulation_steps 4
    --learning_rate 1e-5
    --lr_scheduler_type cosine
    --warmup_steps 60
    --num_train_epochs 2
    --gradient_checkpointing true          # 4 x 4096 tokens: 68 GiB with, does not fit without
    --dataloader_num_workers 4
    --logging_steps 10
    --evaluation_strategy no
    --save_steps 250
    --save_total_limit 2
    --seed 31
)

deepspeed --num_gpus 8 train_minutes.py "${ARGS[@]}"
