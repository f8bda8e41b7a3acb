#!/bin/bash
NUM_GPUS=8
BATCH_SIZE_PER_GPU=1
TOTAL_BATCH_SIZE=128
GRADIENT_ACC_STEPS=$(($TOTAL_BATCH_SIZE/$BATCH_SIZE_PER_GPU))
echo "Training on $NUM_GPUS GPUs, total batch size $TOTAL_BATCH_SIZE"

accelerate launch \
    --config_file scripts/ds_zero3.yaml \
    --num_processes $NUM_GPUS \
    -m instruct_tune.finetune \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
    --use_flash_attn True \
    --train_file data/mix.jsonl \
    --max_seq_length 4096 \
    --per_device_train_batch_size $BATCH_SIZE_PER_GPU \
    --gradient_accumulation_steps $GRADIENT_ACC_STEPS \
    --learning_rate 5e-6 \
    --output_dir output/llama8b-mix
