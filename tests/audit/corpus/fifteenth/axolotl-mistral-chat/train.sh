#!/usr/bin/env bash
set -euo pipefail
CFG=${1:-configs/lora-chat.yml}
python -m axolotl.cli.preprocess "$CFG"
accelerate launch --num_processes 1 -m axolotl.cli.train "$CFG"
