#!/usr/bin/env bash
set -euo pipefail

# reference log-probs are computed once, before the first epoch
ARGS=(
  --output_dir out/summar-dpo
  --num_train_epochs 3
  --per_device_train_batch_size 2
  --gradient_accumulation_steps 8
  --learning_rate 5e-6
  --lr_scheduler_type cosine
  --warmup_ratio 0.1
  --max_length 2048
  --max_prompt_length 1536
  --bf16 True
  --gradient_checkpointing True
  --gradient_checkpointing_kwargs '{"use_reentrant": false}'
  --ddp_find_unused_parameters False
  --precompute_ref_log_probs False
  --dataloader_num_workers 4
  --logging_steps 10
  --save_steps 200
  --save_total_limit 3
  --seed 11
  --report_to none
)

accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 dpo.py "${ARGS[@]}"
