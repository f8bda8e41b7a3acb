#!/bin/bash
# 4x A100 40GB
torchrun --standalone --nproc_per_node=4 fit.py --micro_batch 8 --global_batch 256 "$@"
