#!/bin/bash
# CONFIG=qlora-12b.yml ./train.sh
set -e
. ~/ax/bin/activate
CONFIG=${CONFIG:-qlora-8b.yml}
echo "training $CONFIG on $(nvidia-smi --query-gpu=name --format=csv,noheader)"
export CUDA_VISIBLE_DEVICES=0
axolotl preprocess qlora-8b.yml
accelerate launch --num_processes 1 -m axolotl.cli.train qlora-8b.yml 2>&1 | tee "${CONFIG%.yml}.log"
