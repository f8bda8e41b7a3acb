#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=src
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 \
  -m helpdesk.train configs/qwen_lora.json
