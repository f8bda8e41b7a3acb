#!/usr/bin/env bash
set -euo pipefail
source configs/7b.env

NUM_GPUS=8
BATCH_SIZE_PER_GPU=2
TOTAL_BATCH_SIZE=128
GRADIENT_ACC_STEPS=$((TOTAL_BATCH_SIZE / NUM_GPUS / BATCH_SIZE_PER_GPU))
echo "configs/7b.env: $MODEL, length $MAX_SEQ_LENGTH, lr $LEARNING_RATE"

accelerate launch --config_file configs/accelerate_fsdp.yaml sparrow/finetune.py \
  --model_name_or_path "$MODEL" \
  --train_file data/mix.jsonl \
  --per_device_train_batch_size "$BATCH_SIZE_PER_GPU" \
  --gradient_accumulation_steps "$GRADIENT_ACC_STEPS" \
  --learning_rate "$LEARNING_RATE" \
  --warmup_ratio "$WARMUP_RATIO" \
  --num_train_epochs "$EPOCHS" \
  --output_dir out/sparrow-7b
