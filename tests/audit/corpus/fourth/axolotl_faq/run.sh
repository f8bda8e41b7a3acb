#!/usr/bin/env bash
# Trains everything in configs/ one after the other on the 4 x A100 80GB box,
# then leaves the adapters in outputs/.
set -euo pipefail
cd "$(dirname "$0")"

export WANDB_MODE=offline
CONFIGS=(
  configs/chat-7b.yml
  configs/faq-1b.yml
)

for cfg in "${CONFIGS[@]}"; do
    echo "== $cfg"
    axolotl preprocess "$cfg"
    axolotl train "$cfg"
done
