#!/usr/bin/env bash
set -euo pipefail
NGPU=4
GLOBAL=64
MICRO=2
ACCUM=$(( GLOBAL / (MICRO * NGPU) ))

OMP_NUM_THREADS=8 torchrun --standalone --nproc_per_node "$NGPU" train.py \
    --model_name meta-llama/Llama-3.2-3B \
    --train_file data/train.jsonl \
    --output_dir runs/sum-3b \
    --num_train_epochs 2 \
    --per_device_train_batch_size "$MICRO" \
    --gradient_accumulation_steps "$ACCUM" \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --bf16 true \
    --optim adamw_torch_fused \
    --fsdp "full_shard auto_wrap" \
    --fsdp_config fsdp.json \
    --group_by_length true \
    --length_column_name length \
    --dataloader_num_workers 4 \
    --logging_steps 20 \
    --save_steps 400 \
    --save_total_limit 2 \
    --seed 11 \
    --report_to tensorboard
