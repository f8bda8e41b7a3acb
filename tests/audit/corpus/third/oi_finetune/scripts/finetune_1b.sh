#!/usr/bin/env bash
# OLMo-2 1B on the curated mixture, bf16, one node with four H100
set -euo pipefail

EXP=olmo1b-curated-v4
GRAD_ACC=4
PER_DEVICE=4

accelerate launch --config_file configs/node4.yaml finetune.py \
    --model_name_or_path allenai/OLMo-2-0425-1B \
    --train_file data/curated.jsonl \
    --mixed_precision bf16 \
    --max_seq_length 4096 \
    --per_device_train_batch_size $PER_DEVICE \
    --gradient_accumulation_steps $GRAD_ACC \
    --learning_rate 1e-5 \
    --num_train_epochs 2 \
    --output_dir "output/$EXP"
