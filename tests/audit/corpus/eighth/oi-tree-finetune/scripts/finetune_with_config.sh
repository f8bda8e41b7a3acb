#!/bin/bash
# usage: scripts/finetune_with_config.sh CONFIG NUM_GPUS
set -euo pipefail
CONFIG=$1
NUM_GPUS=$2

get() { python -c "import sys, yaml; print(yaml.safe_load(open('$CONFIG')).get('$1', '$2'))"; }

PER_DEVICE=$(get per_device_train_batch_size 1)
TOTAL=$(get total_batch_size 128)
ACCUM=$(( TOTAL / NUM_GPUS / PER_DEVICE ))
echo "config $CONFIG: $NUM_GPUS GPUs, $PER_DEVICE per device, accumulation $ACCUM"

accelerate launch \
    --mixed_precision bf16 \
    --num_machines 1 \
    --num_processes "$NUM_GPUS" \
    --use_deepspeed \
    --deepspeed_config_file configs/ds_zero3.json \
    open_tune/finetune.py \
    --model_name_or_path "$(get model_name_or_path '')" \
    --tokenizer_name "$(get tokenizer_name '')" \
    --train_file "$(get train_file '')" \
    --max_seq_length "$(get max_seq_length 2048)" \
    --preprocessing_num_workers "$(get preprocessing_num_workers 16)" \
    --per_device_train_batch_size "$PER_DEVICE" \
    --gradient_accumulation_steps "$ACCUM" \
    --learning_rate "$(get learning_rate 2e-5)" \
    --lr_scheduler_type "$(get lr_scheduler_type linear)" \
    --weight_decay "$(get weight_decay 0.0)" \
    --num_train_epochs "$(get num_train_epochs 1)" \
    --output_dir "$(get output_dir output/)" \
    --seed "$(get seed 42)" \
    --logging_steps "$(get logging_steps 1)" \
    --checkpointing_steps "$(get checkpointing_steps 500)"
