#!/usr/bin/env bash
# ./launch.sh configs/dispatch_8b.yml
set -e
CFG=${1:?config}
export HF_HOME=/scratch/hf
export NCCL_P2P_LEVEL=NVL
[ -d prepared/dispatch ] || axolotl preprocess "$CFG"
axolotl train "$CFG" --num-epochs 1
