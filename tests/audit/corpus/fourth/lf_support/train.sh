#!/bin/bash
# usage: ./train.sh [learning rate]
# Trains the support adapter on both 4090 cards; the learning rate of the yaml
# is replaced by the first argument.
set -e
LR=${1:-1.0e-4}

export FORCE_TORCHRUN=1
export CUDA_VISIBLE_DEVICES=0,1

llamafactory-cli train qwen_support.yaml --learning_rate $LR --output_dir saves/qwen2.5-7b/lora/support-lr$LR
