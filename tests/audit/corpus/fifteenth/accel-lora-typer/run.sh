#!/bin/bash
# bf16 comes from configs/accelerate.yaml
accelerate launch --config_file configs/accelerate.yaml train.py \
  --data data/train.jsonl --output out/mistral-qa --epochs 2
