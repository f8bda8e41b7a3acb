#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false

accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 train_sft.py \
  --model_name meta-llama/Llama-3.1-8B-Instruct \
  --train_file data/train.jsonl \
  --per_device_batch_size 2 \
  --grad_accum 8 \
  --lora_rank 32 \
  --output_dir out/support-8b
