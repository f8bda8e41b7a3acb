#!/bin/bash
set -euo pipefail
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=8
llamafactory-cli train qwen_sft.yaml
llamafactory-cli export merge.yaml
llamafactory-cli train qwen_dpo.yaml
