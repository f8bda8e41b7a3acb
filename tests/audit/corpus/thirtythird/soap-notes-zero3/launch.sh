#!/bin/bash
set -euo pipefail
DATA=${1:?data}
OUT=${2:?out}
export TOKENIZERS_PARALLELISM=false
mkdir -p "$OUT"
deepspeed --num_gpus 8 train.py \
  --data "$DATA" \
  --output_dir "$OUT" \
  --deepspeed ds_zero3.json \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 2 \
  --num_train_epochs 3 \
  --learning_rate 1e-5 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --max_grad_norm 1.0 \
  --bf16 true \
  --logging_steps 10 \
  --save_strategy epoch \
  --save_total_limit 1 \
  --dataloader_num_workers 4 \
  --report_to tensorboard \
  --seed 21
