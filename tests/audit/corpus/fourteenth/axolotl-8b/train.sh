#!/usr/bin/env bash
# usage: train.sh [config]
set -euo pipefail

CONFIG=${1:-configs/qlora.yml}
echo "training with $CONFIG"

axolotl preprocess configs/qlora.yml
axolotl train configs/qlora.yml
