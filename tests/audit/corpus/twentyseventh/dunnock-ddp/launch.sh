#!/bin/bash
export DUNNOCK_CONFIG=config.json OMP_NUM_THREADS=4
exec torchrun --standalone --nproc_per_node 8 train.py
