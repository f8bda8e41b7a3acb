#!/bin/bash
# full fine-tuning of a 7B model, 8 x A100 80GB
deepspeed --num_gpus 8 train.py \
    --deepspeed configs/ds_zero3.json \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
    --data_path data/chats.jsonl \
    --max_length 4096 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 2 \
    --num_train_epochs 3 \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --bf16 True \
    --gradient_checkpointing True \
    --logging_steps 1 \
    --save_strategy epoch \
    --save_total_limit 2 \
    --report_to tensorboard \
    --output_dir out/qwen7b-full "$@"
