#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=4 sft_contracts.py
