#!/usr/bin/env bash
set -e
# bf16 on the A100 80GB box
accelerate launch --config_file accelerate_4gpu.yaml -m sft.train --bf16 --output_dir out/qwen1.5b-alpaca "$@"
