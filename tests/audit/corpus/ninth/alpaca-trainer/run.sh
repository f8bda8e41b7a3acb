#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python train.py \
    --base_model meta-llama/Llama-3.2-1B \
    --data_path data/alpaca_tiny.jsonl \
    --cutoff_len 1024 \
    --output_dir out/alpaca-1b
