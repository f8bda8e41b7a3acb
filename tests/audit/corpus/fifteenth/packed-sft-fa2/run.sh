#!/bin/bash
export TOKENIZERS_PARALLELISM=false
accelerate launch --multi_gpu --num_machines 1 --num_processes 4 --mixed_precision bf16 train.py \
  --data data/chats.jsonl --out out/qwen-chat --micro-batch 2 --global-batch 32
