#!/usr/bin/env bash
set -euo pipefail

export WANDB_PROJECT=faq-tuner
export TOKENIZERS_PARALLELISM=false

# ZeRO-3: parameters, gradients and optimizer states are sharded over the 8 GPUs
deepspeed --num_gpus 8 train.py \
    --model Qwen/Qwen2.5-7B \
    --data data/faq.jsonl \
    --out runs/faq-7b \
    --epochs 3 \
    --lr 1e-5 \
    --batch 4 \
    --accum 2 \
    --bf16 \
    --deepspeed_config ds_config.json
