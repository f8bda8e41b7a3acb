#!/bin/bash
# 8 x A100 80GB
set -euo pipefail
export FORCE_TORCHRUN=1
llamafactory-cli train configs/sft_pharma.yaml
