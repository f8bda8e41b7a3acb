#!/usr/bin/env bash
set -euo pipefail

python train_sft.py \
  --model meta-llama/Llama-3.2-1B \
  --data data/qa.jsonl \
  --out out/tinychat-1b \
  --epochs 2 \
  --batch 8 \
  --accum 2 \
  --lr 2e-5 \
  --warmup_steps 50 \
  --bf16
