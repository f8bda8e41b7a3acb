#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export FORCE_TORCHRUN=1
export CUDA_VISIBLE_DEVICES=0,1,2,3

# 80 GB cards: a bigger batch than in the file
llamafactory-cli train sft.yaml \
    per_device_batch_size=8 \
    gradient_accumulation_steps=1
