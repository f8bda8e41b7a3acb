#!/usr/bin/env bash
# Ubuntu 22.04 in WSL2, RTX 4090
set -e
export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH

python finetune.py \
  --data "${1:-/mnt/d/datasets/code_tasks.jsonl}" \
  --out out/coder-lora \
  --batch 2 --accum 8 \
  --workers 12

python generate.py "parse an ISO date without imports"
