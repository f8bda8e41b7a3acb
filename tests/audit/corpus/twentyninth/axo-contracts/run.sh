#!/usr/bin/env bash
set -euo pipefail
CONFIG=configs/contracts.yml
[ -d prepared/contracts ] || CUDA_VISIBLE_DEVICES="" axolotl preprocess "$CONFIG"
axolotl train "$CONFIG"
