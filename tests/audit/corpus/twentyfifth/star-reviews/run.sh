#!/bin/sh
export CUDA_VISIBLE_DEVICES=0
python train.py \
  --train_file data/train.csv \
  --valid_file data/valid.csv \
  --output_dir out/distilbert \
  --epochs 3 \
  --batch_size 32 \
  --bf16
