#!/usr/bin/env bash
set -e
# restart after preemption
torchrun --standalone --nproc_per_node=4 train.py --data data/train.jsonl --resume
