#!/usr/bin/env bash
set -euo pipefail
for name in lora lora_long; do
    axolotl preprocess "configs/${name}.yaml"
    axolotl train "configs/${name}.yaml"
done
