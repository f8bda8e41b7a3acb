#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export HF_HUB_ENABLE_HF_TRANSFER=1
export CUDA_LAUNCH_BLOCKING=1
export NCCL_DEBUG=WARN

CUDA_VISIBLE_DEVICES="" axolotl preprocess reply-lora.yml
axolotl train reply-lora.yml
