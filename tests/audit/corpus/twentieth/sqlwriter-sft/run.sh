#!/usr/bin/env bash
set -euo pipefail

# global batch = 128 packed rows per update on 4 GPUs
torchrun --standalone --nproc_per_node 4 train.py \
    --model Qwen/Qwen2.5-1.5B \
    --data data/train.jsonl \
    --output_dir out/sqlwriter-1.5b \
    --lr 1e-5 \
    --epochs 3 \
    --batch_size 8 \
    --grad_accum 2 \
    --lr_scheduler cosine \
    --max_length 2048 \
    --seed 42
