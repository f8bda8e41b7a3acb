#!/usr/bin/env bash
# 8x H100 80GB
set -euo pipefail

RUN=${1:-courteous-$(date +%m%d)}
accelerate launch --config_file accelerate/z3_8gpu.yaml \
  align.py \
  --pairs data/tone_pairs.jsonl \
  --sft-checkpoint Qwen/Qwen2.5-7B-Instruct \
  --run-name "$RUN"
