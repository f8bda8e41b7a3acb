#!/bin/sh
set -e
CUDA_VISIBLE_DEVICES=0 python train_dpo.py --train_file pairs.jsonl --beta 0.1 --epochs 2 "$@"
