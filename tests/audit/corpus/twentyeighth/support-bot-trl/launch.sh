#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
torchrun --standalone --nproc_per_node=2 train_sft.py configs/sft.yaml
