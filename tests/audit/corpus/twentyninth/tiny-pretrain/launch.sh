#!/usr/bin/env bash
set -e
NGPU=${NGPU:-4}
OMP_NUM_THREADS=4 torchrun --standalone --nproc_per_node "$NGPU" train.py \
    --tokens data/train.bin --out runs/124m --steps 20000 --batch 16 --ctx 1024
