#!/usr/bin/env bash
set -euo pipefail
torchrun --standalone --nproc_per_node=4 train.py \
    --model Qwen/Qwen2.5-7B-Instruct \
    --data data/dialogs.jsonl \
    --out outputs/cedar
