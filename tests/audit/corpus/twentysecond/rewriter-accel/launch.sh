#!/bin/sh
# 4x A100, bf16
accelerate launch --config_file accelerate.yaml train.py \
    --model-name EleutherAI/pythia-1.4b \
    --batch-size 16 --accum 4 --epochs 3
