#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
torchrun --standalone --nproc_per_node=4 train.py trainer.learning_rate=1e-4 "$@"
