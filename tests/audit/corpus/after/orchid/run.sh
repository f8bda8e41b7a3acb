#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export TOKENIZERS_PARALLELISM=false
export WANDB_PROJECT=support-assistant

mkdir -p /scratch/runs/orchid-sft-v4
accelerate launch \
    --config_file configs/accelerate.yaml \
    train.py --config configs/sft.yaml "$@"
