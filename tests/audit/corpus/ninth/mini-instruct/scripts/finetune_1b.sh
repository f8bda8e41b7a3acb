#!/bin/bash
# Fine-tunes Llama-3.2-1B in bf16 on one node with 4 H100s.
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3

MODEL_NAME=meta-llama/Llama-3.2-1B
NUM_GPUS=4
BATCH_SIZE_PER_GPU=4
TOTAL_BATCH_SIZE=128
GRADIENT_ACC_STEPS=$(($TOTAL_BATCH_SIZE/$BATCH_SIZE_PER_GPU))
echo "Training ${MODEL_NAME} using $NUM_GPUS GPUs, $BATCH_SIZE_PER_GPU batch size per GPU, $GRADIENT_ACC_STEPS gradient accumulation steps"

accelerate launch \
    --config_file configs/accelerate/ddp_4gpu.yaml \
    --num_machines 1 \
    --num_processes $NUM_GPUS \
    mini_instruct/finetune.py \
    --model_name_or_path $MODEL_NAME \
    --train_file data/sft_mixture.jsonl \
    --max_seq_length 4096 \
    --per_device_train_batch_size $BATCH_SIZE_PER_GPU \
    --gradient_accumulation_steps $GRADIENT_ACC_STEPS \
    --gradient_checkpointing \
    --learning_rate 2e-5 \
    --lr_scheduler_type linear \
    --warmup_ratio 0.03 \
    --num_train_epochs 2 \
    --output_dir output/llama32_1b_sft "$@"
