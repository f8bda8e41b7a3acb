#!/usr/bin/env bash
set -euo pipefail
axolotl preprocess lora-llama.yml
axolotl train lora-llama.yml
