#!/bin/bash
set -euo pipefail

NUM_GPUS=8
CONFIG=configs/train_configs/sft_8b.yaml

accelerate launch \
    --mixed_precision bf16 \
    --num_machines 1 \
    --num_processes $NUM_GPUS \
    open_instruct/finetune.py $CONFIG
