#!/bin/bash
set -euo pipefail
export OMP_NUM_THREADS=8
exec torchrun --standalone --nproc_per_node=8 train_ddp.py \
    --rows /data/rows/instruct.pt \
    --out /scratch/harbor/run3 \
    --batch 8 --accum 4 --lr 2e-5
