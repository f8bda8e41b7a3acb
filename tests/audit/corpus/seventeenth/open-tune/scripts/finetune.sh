#!/usr/bin/env bash
set -euo pipefail
NUM_GPUS=8
BATCH_SIZE_PER_GPU=2
TOTAL_BATCH_SIZE=128
GRADIENT_ACC_STEPS=$((TOTAL_BATCH_SIZE / NUM_GPUS / BATCH_SIZE_PER_GPU))
echo "per GPU $BATCH_SIZE_PER_GPU, accumulation $GRADIENT_ACC_STEPS"

accelerate launch \
  --multi_gpu \
  --num_machines 1 \
  --num_processes $NUM_GPUS \
  --mixed_precision bf16 \
  -m open_tune.finetune \
  --model_name_or_path meta-llama/Llama-3.1-8B \
  --use_flash_attn True \
  --train_file data/dialogues.jsonl \
  --output_dir output/llama31-8b-lora \
  --max_seq_length 4096 \
  --preprocessing_num_workers 16 \
  --per_device_train_batch_size $BATCH_SIZE_PER_GPU \
  --gradient_accumulation_steps $GRADIENT_ACC_STEPS \
  --learning_rate 1e-4 \
  --num_train_epochs 2
