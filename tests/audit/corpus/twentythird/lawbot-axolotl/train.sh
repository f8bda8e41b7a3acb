#!/usr/bin/env bash
# full training run
set -euo pipefail
axolotl preprocess smoke.yaml
axolotl train smoke.yaml
