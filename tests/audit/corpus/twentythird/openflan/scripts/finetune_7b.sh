NUM_GPUS=${NUM_GPUS:-4}

accelerate launch \
    --multi_gpu \
    --num_processes $NUM_GPUS \
    --mixed_precision bf16 \
    finetune.py \
    --model_name_or_path allenai/OLMo-2-1124-7B \
    --use_flash_attn \
    --train_file data/mix.jsonl \
    --max_seq_length 2048 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --learning_rate 1e-4 \
    --output_dir output/openflan
