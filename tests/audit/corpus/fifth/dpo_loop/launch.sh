#!/usr/bin/env bash
# 2 x A100-80G, ~6h
set -e
cd "$(dirname "$0")"
accelerate launch --config_file conf/accelerate_2gpu.yaml -m prefs.train \
    --model Qwen/Qwen2.5-1.5B-Instruct \
    --pairs data/pairs.jsonl \
    --global_batch 64 \
    --micro_batch 4 \
    --epochs 4 \
    --lr 6e-7 \
    --out runs/dpo-a "$@"
