#!/bin/bash
# SFT of Llama 3.1 8B on our mix with open-instruct, two nodes.
# On each node: NODE_RANK=0|1 MAIN_IP=10.0.3.17 bash finetune_8b.sh

MODEL_NAME=meta-llama/Llama-3.1-8B
MODEL_TAG=llama31-8b-mix4
MACHINES=2
NUM_GPUS=16                      # 2 x 8 H100
BATCH_SIZE_PER_GPU=1
TOTAL_BATCH_SIZE=128
GRADIENT_ACC_STEPS=$(($TOTAL_BATCH_SIZE/$NUM_GPUS/$BATCH_SIZE_PER_GPU))

cd "$(dirname "$0")/open-instruct" || exit 1
mkdir -p ../output

echo "Training ${MODEL_TAG} using $NUM_GPUS GPUs, $BATCH_SIZE_PER_GPU batch size per GPU, $GRADIENT_ACC_STEPS gradient accumulation steps"

accelerate launch \
    --mixed_precision bf16 \
    --num_machines $MACHINES \
    --num_processes 8 \
    --machine_rank $NODE_RANK \
    --main_process_ip $MAIN_IP \
    --main_process_port 29400 \
    --use_deepspeed \
    --deepspeed_config_file ../configs/stage3.conf \
    open_instruct/finetune.py \
    --model_name_or_path $MODEL_NAME \
    --tokenizer_name $MODEL_NAME \
    --chat_template_name tulu \
    --dataset_mixer_list allenai/tulu-3-sft-mixture 0.5 acme/internal-sft 1.0 \
    --per_device_train_batch_size $BATCH_SIZE_PER_GPU \
    --gradient_accumulation_steps $GRADIENT_ACC_STEPS \
    --output_dir ../output/$MODEL_TAG \
#    --packing \
    --max_seq_length 4096 \
    --use_flash_attn \
    --gradient_checkpointing \
    --preprocessing_num_workers 64 \
    --learning_rate 5e-6 \
    --lr_scheduler_type linear \
    --warmup_ratio 0.03 \
    --weight_decay 0.0 \
    --num_train_epochs 2 \
    --checkpointing_steps 1000 \
    --keep_last_n_checkpoints 2 \
    --logging_steps 5 \
    --with_tracking \
    --report_to wandb \
    --seed 8 \
    --push_to_hub False \
    --try_launch_beaker_eval_jobs False
