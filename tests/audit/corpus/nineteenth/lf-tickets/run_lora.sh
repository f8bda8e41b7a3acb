#!/usr/bin/env bash
set -e
CUDA_VISIBLE_DEVICES=0 llamafactory-cli train recipes/llama3_lora.yaml
