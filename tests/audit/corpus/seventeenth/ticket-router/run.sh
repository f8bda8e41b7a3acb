#!/usr/bin/env bash
set -e
python -m ticket_router.train \
  --train_file data/tickets.jsonl \
  --output_dir runs/router-$(date +%m%d) \
  --epochs 4 \
  --batch_size 32 \
  --use_fp16
