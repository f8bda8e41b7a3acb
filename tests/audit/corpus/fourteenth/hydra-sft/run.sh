#!/usr/bin/env bash
set -euo pipefail

# 4x A100 80GB, data parallel
torchrun --standalone --nproc_per_node 4 src/train.py \
    data.path=data/train.jsonl \
    trainer.learning_rate=2e-5 \
    trainer.max_steps=2000
