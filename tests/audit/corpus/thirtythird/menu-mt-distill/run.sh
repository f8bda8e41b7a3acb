#!/bin/bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 distill.py \
  --teacher /models/menu-mt-7b \
  --student Qwen/Qwen2.5-0.5B \
  --train data/menus.train.jsonl \
  --out out/menu-05b
