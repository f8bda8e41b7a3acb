#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
deepspeed --num_gpus 8 --module codegen.train \
  --data data/scripts.jsonl \
  --out outputs/qwen05-scripts \
  --deepspeed ds_zero2.json \
  --bf16 \
  --batch 4 \
  --accum 2
