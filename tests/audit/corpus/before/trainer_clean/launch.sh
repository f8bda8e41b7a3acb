#!/usr/bin/env bash
torchrun --nproc_per_node 8 finetune.py \
  --model_name Qwen/Qwen2.5-0.5B \
  --output_dir out/qwen \
  --per_device_train_batch_size 8 \
  --learning_rate 1e-5 \
  --num_train_epochs 1 \
  --bf16 \
  --optim adamw_torch_fused \
  --logging_steps 20 \
  --save_steps 500 \
  --save_total_limit 2
