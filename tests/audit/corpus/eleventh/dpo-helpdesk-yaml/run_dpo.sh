#!/usr/bin/env bash
set -euo pipefail

# one process per GPU on the 4-GPU box
export TOKENIZERS_PARALLELISM=false

accelerate launch \
  --num_processes 4 \
  --mixed_precision bf16 \
  dpo.py \
  --config configs/dpo.yaml \
  --beta 0.05
