#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
# 2 GPUs, effective batch size 64
torchrun --standalone --nproc_per_node=2 train.py \
  --data data/tickets.jsonl \
  --seq_len 2048 \
  --batch 4 --accum 4 \
  --lr 1e-5 --epochs 2 \
  --packing
