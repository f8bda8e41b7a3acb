#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=1
llamafactory-cli train train.yaml
