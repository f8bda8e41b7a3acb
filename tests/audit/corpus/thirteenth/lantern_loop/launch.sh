#!/usr/bin/env bash
set -euo pipefail
GPUS=${1:-1}
export TOKENIZERS_PARALLELISM=false
torchrun --standalone --nproc_per_node="$GPUS" -m lantern.train --data data/train.jsonl --out runs/lantern
