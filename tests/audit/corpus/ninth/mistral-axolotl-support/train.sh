#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0
axolotl preprocess configs/qlora.yml
axolotl train configs/qlora.yml
