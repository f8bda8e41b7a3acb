#!/usr/bin/env bash
# 4x H100 80GB
set -e
export PYTHONPATH=$PWD
export WANDB_PROJECT=triage
BETA=${BETA:-0.1}

accelerate launch --config_file configs/zero2.yaml -m triage.train \
    --settings configs/dpo.yaml \
    --beta "$BETA" "$@"
