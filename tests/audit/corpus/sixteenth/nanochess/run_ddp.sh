#!/bin/sh
# 4x A100, bf16
torchrun --standalone --nproc_per_node=4 train.py --data moves.bin --dtype bfloat16
