#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export TOKENIZERS_PARALLELISM=false
accelerate launch --multi_gpu --num_machines 1 --num_processes 2 --mixed_precision bf16 --dynamo_backend no train.py sft.yaml
