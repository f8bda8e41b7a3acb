#!/usr/bin/env bash
# 4x A100 80GB
set -euo pipefail
GPUS=4
BATCH_SIZE=4
TOTAL_BATCH_SIZE=64
GRAD_ACC=$((TOTAL_BATCH_SIZE / WORLD_SIZE / BATCH_SIZE))

torchrun --standalone --nproc_per_node $GPUS finetune.py \
  --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
  --use_flash_attn \
  --train_file instructions.jsonl \
  --max_seq_length 2048 \
  --per_device_train_batch_size $BATCH_SIZE \
  --gradient_accumulation_steps $GRAD_ACC \
  --gradient_checkpointing True \
  --gradient_checkpointing_kwargs '{"use_reentrant": true}' \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --num_train_epochs 2 \
  --dataloader_num_workers 2 \
  --save_steps 500 \
  --save_total_limit 2 \
  --bf16 True \
  --seed 123
