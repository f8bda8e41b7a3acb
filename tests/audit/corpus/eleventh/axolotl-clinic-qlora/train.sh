#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0,1
axolotl preprocess config.yml
axolotl train config.yml
