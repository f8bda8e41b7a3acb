#!/usr/bin/env bash
accelerate launch --config_file accelerate.yaml train.py \
  --data_dir data --out runs/sum --epochs 3 --batch 8 --accum 4
