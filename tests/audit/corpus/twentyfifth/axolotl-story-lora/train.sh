#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1
export HF_HOME="${HF_HOME:-$HOME/.cache/huggingface}"

python -m axolotl.cli.preprocess config.yml
accelerate launch --num_processes 2 --mixed_precision bf16 -m axolotl.cli.train config.yml
