#!/usr/bin/env bash
# Trains every member of the mixture, one after another, on the A100 box.
set -euo pipefail
cd "$(dirname "$0")"
JOBS=(code_sft docs_sft)

for job in "${JOBS[@]}"; do
    cfg="configs/${job}.yaml"
    axolotl preprocess "$cfg"
    axolotl train "$cfg" --launcher accelerate -- --num_processes 4
    axolotl merge-lora "$cfg" --lora-model-dir "outputs/${job}"
done
