#!/bin/bash
set -euo pipefail
GPUS=${GPUS:-2}
MICRO=2
GLOBAL=32
ACCUM=$((GLOBAL / (MICRO * GPUS)))

torchrun --standalone --nproc_per_node "$GPUS" -m qlora_legal.train \
  --train_file data/legal.jsonl \
  --output_dir out/legal-14b \
  --per_device_train_batch_size $MICRO \
  --gradient_accumulation_steps $ACCUM \
  --gradient_checkpointing True \
  --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
  --ddp_find_unused_parameters False \
  --group_by_length True \
  --bf16 True \
  --optim paged_adamw_8bit \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --num_train_epochs 2 \
  --logging_steps 20 \
  --save_steps 200 \
  --save_total_limit 2 \
  --dataloader_num_workers 2 \
  --report_to tensorboard
