#!/usr/bin/env bash
set -euo pipefail
CONFIG=${CONFIG:-mistral-legal.yaml}
axolotl preprocess "$CONFIG"
axolotl train "$CONFIG"
