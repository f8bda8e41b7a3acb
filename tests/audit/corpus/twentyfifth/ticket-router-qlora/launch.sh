#!/usr/bin/env bash
set -euo pipefail
NGPU=${NGPU:-2}
torchrun --standalone --nproc_per_node "$NGPU" train.py \
  --data tickets.jsonl \
  --max_len 2048 \
  --batch_size 2 \
  --grad_accum 8 \
  --deepspeed ds_zero2.json
CUDA_VISIBLE_DEVICES=0 python score.py out/router tickets_test.jsonl
