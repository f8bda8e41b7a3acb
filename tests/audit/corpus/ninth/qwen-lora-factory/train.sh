#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
LR=${LR:-5.0e-5}
FORCE_TORCHRUN=1 llamafactory-cli train configs/qwen_lora_sft.yaml --learning_rate $LR
