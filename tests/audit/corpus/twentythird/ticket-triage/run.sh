#!/usr/bin/env bash
set -euo pipefail

torchrun --nproc_per_node 4 train.py \
  --model_name Qwen/Qwen2.5-1.5B \
  --train_file data/train.jsonl \
  --eval_file data/eval.jsonl \
  --output_dir runs/triage \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --learning_rate 2e-5 \
  --num_train_epochs 3 \
  --warmup_ratio 0.03 \
  --bf16 true \
  --optim adamw_torch_fused \
  --group_by_length true \
  --evaluation_strategy steps \
  --eval_steps 200 \
  --save_steps 200 \
  --save_total_limit 2 \
  --logging_steps 20 \
  --dataloader_num_workers 4 \
  --report_to none \
  --seed 17
