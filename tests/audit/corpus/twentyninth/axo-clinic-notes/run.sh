#!/usr/bin/env bash
set -euo pipefail
CONFIG=configs/clinic_lora.yml

axolotl preprocess "$CONFIG"
axolotl train "$CONFIG"
