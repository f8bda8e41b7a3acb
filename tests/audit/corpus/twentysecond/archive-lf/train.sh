#!/usr/bin/env bash
set -euo pipefail

export FORCE_TORCHRUN=1
export NPROC_PER_NODE=2
SEED="${1:-42}"

llamafactory-cli train configs/lora_sft.yaml \
    seed="$SEED" \
    output_dir="saves/archive-s$SEED"
