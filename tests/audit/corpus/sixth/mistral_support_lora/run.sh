#!/bin/bash
# one node, 4x A100 40GB
set -euo pipefail
CONFIG=${1:-configs/mistral_7b.yaml}
export TOKENIZERS_PARALLELISM=false
export WANDB_PROJECT=support-sft
torchrun --standalone --nproc_per_node=4 train.py --config "$CONFIG"
