#!/usr/bin/env bash
set -euo pipefail
# 4 GPUs x 1 packed row x 8 = 32 rows of 4096 tokens per update
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 \
    sft.py --config sft.yaml "$@"
