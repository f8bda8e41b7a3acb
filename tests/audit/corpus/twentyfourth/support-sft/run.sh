#!/usr/bin/env bash
set -euo pipefail

accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 \
    train.py \
    --model Qwen/Qwen2.5-3B \
    --train_file data/tickets.jsonl \
    --max_len 2048 \
    --batch_size 4 \
    --lr 2e-4 \
    --warmup_steps 50 \
    "$@"
