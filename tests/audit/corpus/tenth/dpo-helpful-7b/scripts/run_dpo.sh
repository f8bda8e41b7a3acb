#!/bin/bash
set -e
mode=${1:-full}
case "$mode" in
  full)
    accelerate launch --num_processes 8 --mixed_precision bf16 dpo.py \
        --config configs/dpo_full.yaml --beta 0.3
    ;;
  lora)
    accelerate launch --num_processes 8 --mixed_precision bf16 dpo.py \
        --config configs/dpo_lora.yaml
    ;;
esac
