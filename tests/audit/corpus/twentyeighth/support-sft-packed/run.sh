#!/usr/bin/env bash
set -euo pipefail
accelerate launch --config_file configs/two_gpus.yaml sft.py --config configs/sft.yaml "$@"
