#!/usr/bin/env bash
set -euo pipefail
export WANDB_PROJECT=granite
torchrun --standalone --nproc_per_node=8 main.py \
    --name meta-llama/Llama-3.1-8B \
    --path data/sft.jsonl \
    --max_tokens 2048 \
    --batch 4 \
    --target_batch 128
