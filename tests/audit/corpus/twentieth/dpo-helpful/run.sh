#!/bin/sh
set -e
pip install -r requirements.txt
accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 dpo_train.py \
    --train_file pairs/train.jsonl \
    --eval_file pairs/eval.jsonl \
    --epochs 3 \
    --beta 0.1
