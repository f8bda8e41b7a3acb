#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export WANDB_PROJECT=statutes
export CUDA_VISIBLE_DEVICES=0,1

axolotl preprocess configs/bylaws.yml
axolotl train configs/bylaws.yml --launcher accelerate
