#!/usr/bin/env bash
set -euo pipefail

export CUDA_VISIBLE_DEVICES=0
export TOKENIZERS_PARALLELISM=false

python train.py \
  --model TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T \
  --data data/alpaca_mini.jsonl \
  --output_dir out/tinyllama-alpaca \
  --num_train_epochs 3 \
  --batch_size 8 \
  --lr 2e-4
