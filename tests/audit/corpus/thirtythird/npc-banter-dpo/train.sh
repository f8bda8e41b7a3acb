#!/bin/bash
set -e
python train_dpo.py \
  --pairs data/pairs.jsonl \
  --out runs/banter \
  --epochs 2
