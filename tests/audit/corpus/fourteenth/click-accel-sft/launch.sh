#!/usr/bin/env bash
set -e

accelerate launch --multi_gpu --num_processes 4 train.py \
    --precision bf16 \
    --data-path data/qa.jsonl \
    --batch-size 8 \
    --grad-accum 4 \
    --output-dir out/qwen-qa
