#!/bin/bash
python finetune.py \
  --base_model Qwen/Qwen2.5-0.5B \
  --data data/alpaca_tiny.jsonl \
  --cutoff_len 2048 \
  --batch_size 4 --accum 4 \
  --workers 16 \
  --bf16 \
  --out out/qwen05-alpaca
