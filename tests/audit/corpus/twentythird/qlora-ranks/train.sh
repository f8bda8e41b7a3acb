#!/usr/bin/env bash
set -euo pipefail
GPUS=${GPUS:-4}
torchrun --standalone --nproc_per_node "$GPUS" qlora.py --data data/faq.jsonl --out runs/faq --global-batch 64
