#!/usr/bin/env bash
cd "$(dirname "$0")"
accelerate launch --multi_gpu --num_processes 4 train.py \
  train.lr=1e-5 \
  train.warmup=200 \
  train.epochs=3
