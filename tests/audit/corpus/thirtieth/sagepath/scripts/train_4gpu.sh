#!/usr/bin/env bash
# four L40S
set -euo pipefail
cd "$(dirname "$0")/.."
torchrun --standalone --nproc_per_node=4 -m sagepath.fit \
    --table data/paths.tsv \
    --global-batch 256 \
    --micro-batch 16 \
    --lr 2e-5 \
    --bf16 \
    --out runs/l40s
