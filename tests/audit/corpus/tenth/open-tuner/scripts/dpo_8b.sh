#!/bin/bash
# 8 GPUs, 64 preference pairs per update
export PYTHONPATH=$PWD
accelerate launch \
    --mixed_precision bf16 \
    --num_machines 1 \
    --num_processes 8 \
    open_tuner/dpo_tune.py \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
    --dataset_name acme-lab/preference-mix \
    --use_lora True \
    --total_batch_size 64 \
    --per_device_train_batch_size 2 \
    --learning_rate 5e-6 \
    --num_train_epochs 2 \
    --with_tracking True \
    --output_dir output/dpo_8b
