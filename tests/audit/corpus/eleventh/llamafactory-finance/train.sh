#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
export FORCE_TORCHRUN=1

llamafactory-cli train configs/qwen_lora_sft.yaml \
    output_dir=saves/qwen2.5-7b/lora/finance-$(date +%m%d) \
    bf16=false
