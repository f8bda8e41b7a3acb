#!/bin/bash
# one node, 4 GPUs: 4 x 8 x 2 accumulation steps = 64
set -euo pipefail
accelerate launch --config_file accelerate_config.yaml train.py \
  --model meta-llama/Llama-3.2-1B \
  --train_file data/train.jsonl \
  --global_batch_size 64 \
  --micro_batch_size 8 \
  --output_dir out "$@"
