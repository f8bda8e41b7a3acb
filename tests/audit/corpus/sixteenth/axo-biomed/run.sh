#!/bin/bash
# preprocess once, then train on one A100 80GB
set -e
CFG=qlora.yml
CUDA_VISIBLE_DEVICES="" axolotl preprocess "$CFG"
CUDA_VISIBLE_DEVICES=0 axolotl train "$CFG" --launcher accelerate
