#!/usr/bin/env bash
set -e
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 sft.py \
  --model Qwen/Qwen2.5-7B-Instruct \
  --data forum.jsonl \
  --output_dir runs/forum
