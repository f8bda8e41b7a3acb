#!/bin/bash
# two A100s of the teaching machine
export CUDA_VISIBLE_DEVICES=0,1
python train.py --data data/clauses.jsonl --out out/clauses --nproc 2 --epochs 6 "$@"
