#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export FORCE_TORCHRUN=1
export NNODES=1
export NPROC_PER_NODE=4

llamafactory-cli train configs/sft_lora.yaml
llamafactory-cli export configs/merge.yaml
