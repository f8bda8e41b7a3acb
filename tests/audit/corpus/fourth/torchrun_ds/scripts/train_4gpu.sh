#!/usr/bin/env bash
# Full fine-tuning of Qwen2.5-7B on one node with 4 x A100 80GB.
# ds_config.json: ZeRO-3 with the optimizer state offloaded to the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

torchrun --standalone --nproc_per_node=4 finetune.py \
    --model_name_or_path Qwen/Qwen2.5-7B \
    --use_flash_attn True \
    --data_path data/instructions.jsonl \
    --max_len 1024 \
    --output_dir out/qwen2.5-7b-instr \
    --deepspeed ds_config.json \
    --bf16 True \
    --num_train_epochs 3 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 1 \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.05 \
    --logging_steps 5 \
    --save_strategy epoch \
    --save_total_limit 1 \
    --report_to none \
    --seed 2026
