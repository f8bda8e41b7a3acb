#!/usr/bin/env bash
set -euo pipefail

export OUT_DIR=${OUT_DIR:-out/qwen-dpo}
NUM_GPUS=${NUM_GPUS:-4}

torchrun --standalone --nproc_per_node "$NUM_GPUS" train_dpo.py
