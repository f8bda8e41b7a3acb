#!/usr/bin/env bash
# 2 x L40S 48 GB; 60k clauses of 200 to 900 tokens, packed whole into rows of 4096
set -euo pipefail
accelerate launch --num_machines 1 --num_processes 2 --multi_gpu --mixed_precision bf16 train.py \
    --data data/clauses.jsonl \
    --output_dir out/contract-qlora \
    --max_length 4096 \
    --packing True \
    --packing_strategy bfd \
    --completion_only_loss True \
    --dataset_num_proc 8 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --gradient_checkpointing True \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    --learning_rate 1e-4 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --num_train_epochs 2 \
    --optim adamw_torch_fused \
    --bf16 True \
    --dataloader_num_workers 2 \
    --logging_steps 10 \
    --save_steps 100 \
    --save_total_limit 3 \
    --seed 99 \
    --report_to tensorboard
