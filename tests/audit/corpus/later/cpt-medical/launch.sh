#!/bin/bash
set -e
accelerate launch --config_file accelerate_config.yaml cpt.py \
    --corpus data/guidelines-*.jsonl \
    --output runs/qwen3b-guidelines \
    --epochs 1
