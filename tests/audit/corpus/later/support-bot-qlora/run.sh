#!/usr/bin/env bash
# 4x L40S, one node
set -euo pipefail

export TOKENIZERS_PARALLELISM=false
OUT=runs/bot-$(date +%Y%m%d)

torchrun --standalone --nproc_per_node 4 train_qlora.py \
  --data_file data/tickets.jsonl \
  --output_dir "$OUT" \
  --merged_dir "$OUT/merged" \
  --max_seq_length 2048 \
  --packing True \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 2 \
  --learning_rate 2e-4 \
  --lr_scheduler_type cosine \
  --warmup_steps 50 \
  --num_train_epochs 2 \
  --bf16 True \
  --gradient_checkpointing True \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy steps --save_steps 100 --save_total_limit 3 \
  --logging_steps 10 \
  --seed 13
