#!/bin/bash
# usage: ./run.sh [learning rate]
set -e
LR=${1:-1e-4}
export CUDA_VISIBLE_DEVICES=0,1
export FORCE_TORCHRUN=1
llamafactory-cli train configs/qwen_shop_lora.yaml --learning_rate $LR
