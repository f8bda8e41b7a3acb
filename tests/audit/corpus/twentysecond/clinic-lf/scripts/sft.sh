#!/bin/bash
set -e
cd "$(dirname "$0")/.."

export FORCE_TORCHRUN=1
export NPROC_PER_NODE=4

llamafactory-cli train configs/sft.yaml \
    --num_train_epochs 2 \
    --learning_rate 5e-5
