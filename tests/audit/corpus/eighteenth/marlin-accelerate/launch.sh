#!/usr/bin/env bash
set -euo pipefail
accelerate launch --config_file accelerate.yaml train.py \
    --data data/enquiries.jsonl \
    --output-dir runs/marlin \
    --epochs 2 "$@"
