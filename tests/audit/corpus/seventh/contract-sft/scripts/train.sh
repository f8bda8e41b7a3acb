#!/usr/bin/env bash
# 4x A100 80GB, one node
set -euo pipefail
cd "$(dirname "$0")/.."
CFG=${1:-configs/sft_8b.yaml}
shift || true
export TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=8

python -m pip install -q -r requirements.txt

torchrun --standalone --nproc_per_node 4 train_sft.py "$CFG" "$@"
