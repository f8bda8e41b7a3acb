#!/bin/bash
set -e
python dpo.py \
  --model Qwen/Qwen2.5-0.5B-Instruct \
  --pairs data/pairs.jsonl \
  --beta 0.1 \
  --loss-type sigmoid \
  --out runs/dpo
