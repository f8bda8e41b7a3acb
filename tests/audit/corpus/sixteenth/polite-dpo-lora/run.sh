#!/bin/sh
# two 48 GB cards, one full 4-bit copy on each
accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 train_dpo.py "$@"
