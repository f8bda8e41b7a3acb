#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1

axolotl preprocess configs/sft.yml
axolotl train configs/sft.yml
axolotl merge-lora configs/sft.yml --lora-model-dir=./outputs/sft

axolotl preprocess configs/dpo.yml
axolotl train configs/dpo.yml
