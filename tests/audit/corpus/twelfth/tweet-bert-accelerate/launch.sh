#!/usr/bin/env bash
set -e
accelerate launch --config_file accelerate_config.yaml finetune.py \
  --train-file data/train.csv \
  --valid-file data/valid.csv \
  --epochs 3 \
  --batch-size 32
