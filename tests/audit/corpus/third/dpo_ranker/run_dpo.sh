#!/bin/bash
# 4x A100-80G, data parallel: each card has its own copy and its own quarter of the pairs
set -eu
NGPU=${NGPU:-4}
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node="$NGPU" dpo.py \
  --policy checkpoints/summariser-3b-sft \
  --pairs data/pairs.jsonl \
  --epochs 3 \
  --per-device 4 --accum 4 \
  --out runs/dpo-3b "$@"
