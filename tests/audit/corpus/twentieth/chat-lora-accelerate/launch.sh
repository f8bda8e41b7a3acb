#!/bin/bash
set -e
accelerate launch --config_file config/accelerate.yaml train.py \
  --model_name meta-llama/Llama-3.2-3B-Instruct \
  --train_file data/dialogs.jsonl \
  --per_device_batch 4 \
  --grad_accum 4 \
  --epochs 2 \
  --out ckpt/llama3b-chat
