#!/usr/bin/env bash
set -euo pipefail
export WANDB_DISABLED=true
axolotl preprocess configs/lora.yaml
axolotl train configs/lora.yaml
