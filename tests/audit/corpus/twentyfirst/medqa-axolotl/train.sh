#!/usr/bin/env bash
set -e
axolotl preprocess configs/medqa-lora.yml
axolotl train configs/medqa-lora.yml
