#!/bin/bash
set -e
source .venv/bin/activate
axolotl merge-lora configs/qwen2.5-7b-lora.yml --lora-model-dir ./outputs/qwen2.5-7b-legal
