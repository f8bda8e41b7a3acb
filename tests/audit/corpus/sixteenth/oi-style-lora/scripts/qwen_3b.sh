#!/bin/bash
# total batch: 2 per GPU x 8 steps x 8 GPUs = 128
accelerate launch --multi_gpu --num_processes 8 --mixed_precision bf16 finetune.py \
  --model_name_or_path Qwen/Qwen2.5-3B-Instruct \
  --train_file data/train.jsonl \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --learning_rate 1e-4 \
  --num_train_epochs 2 \
  --lora_rank 64 \
  --lora_alpha 16 \
  --output_dir output/qwen3b-lora
