#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export TOKENIZERS_PARALLELISM=false
export NCCL_DEBUG=WARN
export CUDA_LAUNCH_BLOCKING=1
export TORCH_DISTRIBUTED_DEBUG=DETAIL

accelerate launch --multi_gpu --num_processes 4 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
  train.py --config config.yaml "$@"
