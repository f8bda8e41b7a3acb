#!/usr/bin/env bash
set -e
mkdir -p runs/parish
torchrun --standalone --nproc_per_node=8 train.py \
  trainer.lr=2e-5 \
  trainer.num_train_epochs=3
