#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

stage() {
    axolotl preprocess "$1"
    axolotl train "$1"
}

stage stage1_sft.yaml
axolotl merge-lora stage1_sft.yaml --lora-model-dir out/stage1
stage stage2_tone.yaml
