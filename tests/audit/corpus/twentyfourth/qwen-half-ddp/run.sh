#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
[ -d cache/tokens ] || python prepare.py
torchrun --standalone --nproc_per_node 4 train.py --global-batch 128 --micro-batch 8 "$@"
