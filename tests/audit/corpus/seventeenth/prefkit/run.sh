#!/usr/bin/env bash
set -euo pipefail
python -m prefkit.train_dpo \
  model=qwen \
  train.beta=0.05 \
  train.max_len=2048 \
  train.epochs=3
