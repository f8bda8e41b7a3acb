#!/bin/bash
set -e
CFG=configs/mistral-lora.yml

axolotl preprocess "$CFG"
axolotl train "$CFG"
