#!/bin/bash
# continued pre-training, one A100 80GB
set -e
python train.py \
    model=qwen05b \
    train.lr=2e-5 \
    train.epochs=2 \
    output_dir=outputs/cpt-medical-2ep
