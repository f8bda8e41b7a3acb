#!/usr/bin/env bash
set -euo pipefail

accelerate launch --config_file accelerate_config.yaml train.py \
    --model_name_or_path EleutherAI/pythia-1.4b \
    --mixed_precision bf16 \
    --gradient_accumulation_steps 8 \
    --learning_rate 1e-5 \
    --output_dir runs/dolly-pythia
