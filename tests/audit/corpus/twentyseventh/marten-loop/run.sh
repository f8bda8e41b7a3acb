#!/bin/bash
# two A100s, bf16
pip install -q -r requirements.txt
accelerate launch --multi_gpu --num_processes 2 train.py --batch-size 4 --accum 8 --epochs 3
