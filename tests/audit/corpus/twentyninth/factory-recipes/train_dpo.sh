#!/usr/bin/env bash
set -euo pipefail
export FORCE_TORCHRUN=1 NPROC_PER_NODE=4
llamafactory-cli train configs/qwen_dpo.yaml
