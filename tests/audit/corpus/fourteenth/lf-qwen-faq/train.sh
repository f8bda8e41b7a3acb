#!/bin/bash
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3
export FORCE_TORCHRUN=1

llamafactory-cli train configs/qwen_sft.yaml \
    learning_rate=5e-5 \
    num_epochs=2
