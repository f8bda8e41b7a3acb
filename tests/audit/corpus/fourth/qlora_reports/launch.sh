#!/usr/bin/env bash
# 4 x A10G (24 GB), spot instance: the wrapper of the cloud starts this file again
# after an interruption and finetune.py goes on from the newest checkpoint.
set -euo pipefail
torchrun --standalone --nproc_per_node=4 finetune.py \
    --train_file /data/reports/train.jsonl \
    --eval_file /data/reports/eval.jsonl \
    --output_dir /data/runs/qwen3-14b-reports \
    --global_batch 32 \
    --per_device_train_batch_size 1 \
    --num_train_epochs 2 \
    --learning_rate 1e-4
