#!/bin/bash
set -e
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=4

llamafactory-cli train configs/qwen_lora_sft.yaml
