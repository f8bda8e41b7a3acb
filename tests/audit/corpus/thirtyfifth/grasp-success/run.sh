#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
GPUS=$(nvidia-smi --list-gpus | wc -l)
torchrun --standalone --nproc_per_node "$GPUS" train.py --crops /data/grasps --accumulate 2 "$@"
