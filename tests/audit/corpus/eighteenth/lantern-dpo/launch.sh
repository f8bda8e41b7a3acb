#!/usr/bin/env bash
set -euo pipefail
export WANDB_PROJECT=lantern
export TOKENIZERS_PARALLELISM=false

accelerate launch --config_file accelerate/ddp4.yaml train_dpo.py --config conf/dpo.yaml "$@"
