#!/usr/bin/env bash
set -e
accelerate launch --config_file configs/default.yaml finetune.py \
  --data notes.jsonl \
  --out runs/notes \
  --batch-size 4 \
  --accum 4
