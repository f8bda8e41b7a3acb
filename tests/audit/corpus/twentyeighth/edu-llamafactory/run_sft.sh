#!/usr/bin/env bash
set -euo pipefail

export FORCE_TORCHRUN=1
export NCCL_DEBUG=WARN

OUT=${OUT:-saves/qwen25-7b-edu}

llamafactory-cli train configs/qwen_full_sft.yaml \
    output_dir=${OUT} \
    bf16=false \
    learning_rate=1.0e-5
