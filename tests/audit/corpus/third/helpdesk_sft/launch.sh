#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

RECIPE=${1:-recipe.yaml}
shift || true

export TOKENIZERS_PARALLELISM=false
exec accelerate launch --num_processes 2 --mixed_precision bf16 \
    train.py --config "$RECIPE" "$@"
