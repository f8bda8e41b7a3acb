#!/bin/bash
set -euo pipefail
python train.py \
  --model_name Qwen/Qwen2.5-1.5B-Instruct \
  --train_file data/train.jsonl \
  --eval_file data/eval.jsonl \
  --output_dir out/larkspur \
  --max_length 2048 \
  --packing True \
  --bf16 True \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing True \
  --optim adamw_torch_fused \
  --learning_rate 1e-5 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --num_train_epochs 2 \
  --evaluation_strategy steps \
  --eval_steps 200 \
  --save_steps 200 \
  --save_total_limit 2 \
  --logging_steps 1 \
  --report_to tensorboard \
  --seed 7
