#!/usr/bin/env bash
# data parallel over the 4 GPUs of the node
set -euo pipefail
torchrun --standalone --nproc_per_node=4 train_qlora.py \
  --dataset_path data/train.jsonl \
  --per_device_batch_size 2 \
  --grad_accum 4 \
  --learning_rate 2e-4 \
  --output_dir outputs/llama31-qlora
