#!/usr/bin/env bash
set -e
export TOKENIZERS_PARALLELISM=false
python train.py \
    --model_name Qwen/Qwen2.5-0.5B \
    --data_file data/recipes.jsonl \
    --output_dir out/recipe-0.5b \
    --lr 2e-5 \
    --batch_size 8 \
    --epochs 3 \
    --bf16
