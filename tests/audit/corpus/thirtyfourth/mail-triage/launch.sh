#!/usr/bin/env bash
set -euo pipefail

accelerate launch \
  --multi_gpu --num_processes 4 --num_machines 1 --dynamo_backend no \
  --mixed_precision bf16 \
  train.py \
  --data tokens \
  --out "runs/${1:-queues}" \
  --batch-size 16 --accum 4 --epochs 4 --lr 3e-5
