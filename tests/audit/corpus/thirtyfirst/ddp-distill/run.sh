#!/usr/bin/env bash
# 4 x H100 80GB, one copy of the teacher and of the student on every card
set -eu
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=4 distill.py --bs 8 --epochs 2 "$@"
