#!/usr/bin/env bash
set -euo pipefail

case "${1:?axolotl or llamafactory}" in
axolotl)
    axolotl preprocess axolotl/lora-7b.yml
    axolotl train axolotl/lora-7b.yml
    ;;
llamafactory)
    FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train llamafactory/lora_7b.yaml \
        learning_rate=2.0e-4 output_dir=saves/beacon-7b-lr2e-4
    ;;
*)
    echo "unknown tool: $1" >&2
    exit 2
    ;;
esac
