#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1,2,3

FORCE_TORCHRUN=1 llamafactory-cli train qwen_lora_sft.yaml
llamafactory-cli export qwen_merge.yaml
