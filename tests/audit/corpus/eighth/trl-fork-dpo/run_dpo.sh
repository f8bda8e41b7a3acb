#!/bin/bash
# starts the DPO run of the report on the A100 box
set -e
export HF_HUB_OFFLINE=1
export TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=8

accelerate launch \
    --multi_gpu \
    --num_processes 4 \
    --mixed_precision bf16 \
    --main_process_port 29511 \
    examples/dpo_lora.py recipes/llama8b_v1.yaml 2>&1 | tee dpo.log
