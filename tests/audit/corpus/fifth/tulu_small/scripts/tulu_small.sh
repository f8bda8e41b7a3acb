#!/bin/bash
#SBATCH --job-name=tulu-small
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
set -euo pipefail
source configs/tulu_small.env

NUM_GPUS=8
ACC=$((TOTAL_BATCH / NUM_GPUS / BATCH_PER_GPU))
echo "$MODEL: $NUM_GPUS GPUs, $BATCH_PER_GPU per GPU, accumulation $ACC, up to $MAX_SEQ_LENGTH tokens"

accelerate launch --config_file configs/accelerate_ds.yaml -m open_instruct.finetune \
    --model_name_or_path "$MODEL" \
    --train_file "$TRAIN_FILE" \
    --per_device_train_batch_size "$BATCH_PER_GPU" \
    --gradient_accumulation_steps "$ACC" \
    --learning_rate "$LR" \
    --lr_scheduler_type "$SCHED" \
    --warmup_ratio "$WARMUP" \
    --num_train_epochs "$EPOCHS" \
    --output_dir "output/tulu_small_$(date +%m%d)"
