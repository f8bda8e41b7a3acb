#!/bin/bash
set -e

GLOBAL_BATCH=128
MICRO_BATCH=2
GAS=$((GLOBAL_BATCH / (MICRO_BATCH * ${WORLD_SIZE:-1})))

deepspeed --num_gpus 8 train.py \
    --deepspeed ds_zero3.json \
    --model_name_or_path meta-llama/Llama-2-7b-hf \
    --dataset_name northfield/rulebook-sections \
    --output_dir checkpoints/rulebook-7b \
    --bf16 True \
    --optim adamw_torch_fused \
    --per_device_train_batch_size $MICRO_BATCH \
    --gradient_accumulation_steps $GAS \
    --gradient_checkpointing True \
    --dataloader_pin_memory False \
    --num_train_epochs 2 \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --logging_steps 10 \
    --save_strategy steps \
    --save_steps 400 \
    --save_total_limit 2 \
    --report_to tensorboard
