#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
export TOKENIZERS_PARALLELISM=false

python train.py \
  out=runs/shelf-$(date +%m%d) \
  optim.lr=2e-5 \
  train.epochs=3
