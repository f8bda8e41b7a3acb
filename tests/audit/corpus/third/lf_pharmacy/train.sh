#!/bin/bash
# 2x A100-40G
export CUDA_VISIBLE_DEVICES=0,1
export FORCE_TORCHRUN=1
llamafactory-cli train config/sft.yaml
