#!/usr/bin/env bash
# 4x A100. The 3B model, three learning rates
set -euo pipefail
for LR in 5e-6 9e-6 2e-5; do
  accelerate launch --multi_gpu --num_processes 4 src/train_rm.py \
    training.lr=$LR \
    output_dir=runs/qwen3b-rm-$LR
done
