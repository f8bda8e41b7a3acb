#!/usr/bin/env bash
# one node, eight A100-40G; 128 recipes per update
set -euo pipefail
torchrun --standalone --nproc_per_node=8 train_ddp.py \
    --train-file data/recipes_180k.jsonl \
    --global-batch 128 --micro-batch 8 "$@"
