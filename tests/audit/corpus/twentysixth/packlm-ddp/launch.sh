#!/usr/bin/env bash
set -euo pipefail
torchrun --standalone --nproc_per_node=4 train.py --rows data/rows --out runs
