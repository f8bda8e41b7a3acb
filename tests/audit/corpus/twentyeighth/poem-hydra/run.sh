#!/usr/bin/env bash
# A100 80GB
set -e
pip install -r requirements.txt
python train.py \
    model.lora_r=32 \
    model.lora_alpha=64 \
    training.lr=1e-4 \
    out=out/poems-r32
