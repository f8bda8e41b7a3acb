#!/usr/bin/env bash
set -euo pipefail
export WANDB_PROJECT=llama-lora

torchrun --standalone --nproc_per_node 8 finetune.py \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
    --use_flash_attn \
    --train_file data/train.jsonl \
    --max_seq_length 4096 \
    --output_dir out/llama-lora \
    --num_train_epochs 2 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --learning_rate 1e-4 \
    --lr_scheduler_type linear \
    --warmup_ratio 0.03 \
    --bf16 \
    --optim adamw_torch_fused \
    --gradient_checkpointing \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    --use_liger_kernel \
    --dataloader_num_workers 4 \
    --logging_steps 1 \
    --save_steps 500 \
    --save_total_limit 2 \
    --report_to wandb \
    --seed 8
