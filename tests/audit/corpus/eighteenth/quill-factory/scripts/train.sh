#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")/.."

# adapters at three learning rates
for LR in 5e-5 1e-4 2e-4; do
    llamafactory-cli train configs/lora_sft.yaml \
        --learning_rate "$LR" \
        --output_dir "saves/qwen2.5-7b-lora-$LR"
done

# small full model for comparison
llamafactory-cli train configs/full_sft.yaml
