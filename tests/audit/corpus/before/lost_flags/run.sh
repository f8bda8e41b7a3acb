#!/bin/bash
MODEL=${MODEL:-Qwen/Qwen2.5-7B}
BS=4
torchrun --nproc_per_node=8 train.py \
    --model "$MODEL" \
    --batch_size $BS \
    --global_batch 128 \
    --packing \
    --lr 1e-5
