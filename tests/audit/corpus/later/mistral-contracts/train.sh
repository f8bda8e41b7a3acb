#!/bin/sh
set -eu
axolotl preprocess contracts.yml
axolotl train contracts.yml
axolotl merge-lora contracts.yml --lora-model-dir ./out/contracts-qlora
