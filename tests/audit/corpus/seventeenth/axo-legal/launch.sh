#!/usr/bin/env bash
set -euo pipefail
CONFIG=configs/lora-llama.yml
axolotl fetch deepspeed_configs
axolotl preprocess "$CONFIG"
accelerate launch --multi_gpu --num_processes 4 -m axolotl.cli.train "$CONFIG"
