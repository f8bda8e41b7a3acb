#!/usr/bin/env bash
set -euo pipefail

# The number of cards is counted here, before any worker exists, and handed to the launcher:
# WORLD_SIZE would not be set yet.
CARDS=$(nvidia-smi --list-gpus | wc -l)
MICRO=1
GLOBAL=32
if (( GLOBAL % (MICRO * CARDS) )); then
    echo "$GLOBAL rows do not divide over $CARDS cards" >&2
    exit 1
fi

flags=(
    --output_dir runs/patents-70b
    --deepspeed ds_zero3.json
    --bf16 true
    --per_device_train_batch_size "$MICRO"
    --gradient_accumulation_steps "$(( GLOBAL / (MICRO * CARDS) ))"
    --num_train_epochs 1
    --learning_rate 1e-4
    --lr_scheduler_type cosine
    --warmup_steps 50
    --gradient_checkpointing true
    # PEFT under ZeRO-3 needs the reentrant kind; TRL would force it anyway
    --gradient_checkpointing_kwargs '{"use_reentrant": true}'
    --dataloader_num_workers 2
    --logging_steps 10
    --save_steps 100
    --save_total_limit 2
    --seed 404
)
torchrun --standalone --nproc_per_node="$CARDS" sft_patents.py "${flags[@]}"
