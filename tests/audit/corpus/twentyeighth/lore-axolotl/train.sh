#!/bin/bash
set -e
CFG=configs/qlora-mistral.yml
axolotl preprocess "$CFG"
axolotl train "$CFG"
axolotl merge-lora "$CFG" --lora-model-dir=./outputs/lore-qlora
