#!/usr/bin/env bash
set -euo pipefail

torchrun --standalone --nproc_per_node 2 train.py \
    --model_name Qwen/Qwen2.5-1.5B \
    --train_file data/tickets.jsonl \
    --batch_size 8 \
    --grad_accum 2 \
    --bf16
