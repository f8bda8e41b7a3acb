#!/usr/bin/env bash
set -eu
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 dpo.py \
  --train_file pairs.jsonl \
  --output_dir out/polite \
  --beta 0.1 \
  --max_length 1536 \
  --max_prompt_length 1024 \
  --learning_rate 5e-7 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --num_train_epochs 3 \
  --precompute_ref_log_probs False \
  --gradient_checkpointing True \
  --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
  --bf16 True \
  --logging_steps 1 \
  --eval_strategy steps \
  --eval_steps 500 \
  --save_steps 500 \
  --report_to wandb \
  --seed 7
