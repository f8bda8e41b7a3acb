#!/bin/bash
# 8 x A100 80GB
deepspeed --no_local_rank --num_gpus 8 train.py model=Qwen/Qwen2.5-0.5B train.batch_size=8 train.lr=5e-5
