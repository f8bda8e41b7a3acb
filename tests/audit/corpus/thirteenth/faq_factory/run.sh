#!/usr/bin/env bash
set -e
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=4

llamafactory-cli train configs/qwen_lora.yaml --learning_rate 2e-4 --num_train_epochs 5
