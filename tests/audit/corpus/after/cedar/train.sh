#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export AXOLOTL_DO_NOT_TRACK=1

axolotl preprocess llama3-lora.yml
axolotl train llama3-lora.yml --launcher torchrun -- --nproc_per_node=8

axolotl preprocess qwen-full.yml
axolotl train qwen-full.yml --launcher torchrun -- --nproc_per_node=8
