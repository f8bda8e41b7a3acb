#!/bin/bash
MODEL=allenai/OLMo-2-1124-7B
accelerate launch --config_file scripts/zero3.yaml finetune.py \
    --model_name_or_path $MODEL \
    --use_flash_attn True \
    --dataset_path data/mix.jsonl \
    --max_seq_length 4096 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --learning_rate 1e-5 \
    --num_train_epochs 2 \
    --with_tracking \
    --output_dir output/olmo2_7b_mix
