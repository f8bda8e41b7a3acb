#!/usr/bin/env bash
set -e
LR=${1:-1e-5}
FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train recipes/qwen_full.yaml \
  --learning_rate "$LR"
