#!/bin/bash
set -eu
cd "$(dirname "$0")/.."
export CUDA_VISIBLE_DEVICES=0,1,2,3
LR=${LR:-5e-5}
# a lower rate than the YAML's: 1e-4 went up after the first epoch
llamafactory-cli train configs/qwen_lora_sft.yaml --learning_rate $LR
