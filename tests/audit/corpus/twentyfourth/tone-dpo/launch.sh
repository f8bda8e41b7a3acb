#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false

# softer constraint for the second round
BETA=${BETA:-0.05}

torchrun --standalone --nproc_per_node 4 dpo.py configs/dpo.yaml --beta "$BETA"
