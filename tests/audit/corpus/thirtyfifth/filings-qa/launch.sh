#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export HF_HOME=/mnt/nvme/hf
export TOKENIZERS_PARALLELISM=true

python -m axolotl.cli.preprocess filings.yml
accelerate launch --multi_gpu --num_machines 1 --num_processes 8 -m axolotl.cli.train filings.yml
