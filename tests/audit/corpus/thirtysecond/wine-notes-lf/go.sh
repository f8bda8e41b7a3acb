#!/usr/bin/env bash
# LR=5e-5 ./go.sh      overrides go in as key=value, not as --flags
set -euo pipefail
cd "$(dirname "$0")"
LR=${LR:-1.0e-4}

export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train sft.yaml learning_rate="$LR"
llamafactory-cli export merge.yaml
