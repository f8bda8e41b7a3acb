#!/usr/bin/env bash
# 8 x H100 80 GB, 256 sequences per update
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
NGPU=8
PER_DEVICE=2
GLOBAL_BATCH=256
GRAD_ACC=$((GLOBAL_BATCH / (PER_DEVICE * ${WORLD_SIZE:-1})))

torchrun --standalone --nproc_per_node="$NGPU" train.py \
    --deepspeed configs/ds_zero2.json \
    --model_name_or_path "$MODEL" \
    --train_file data/train.jsonl \
    --max_length 1024 \
    --output_dir runs/foundry-0.5b \
    --per_device_train_batch_size "$PER_DEVICE" \
    --gradient_accumulation_steps "$GRAD_ACC" \
    --num_train_epochs 3 \
    --learning_rate 2e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --max_grad_norm 1.0 \
    --optim adamw_torch_fused \
    --bf16 True \
    --gradient_checkpointing True \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    --dataloader_num_workers 0 \
    --logging_steps 10 \
    --save_steps 500 \
    --save_total_limit 2 \
    --report_to tensorboard \
    --seed 42
