#!/usr/bin/env bash
set -euo pipefail

for cfg in configs/qlora-8b.yml configs/full-1b.yml; do
    axolotl preprocess "$cfg"
    axolotl train "$cfg"
done
