#!/usr/bin/env bash
set -euo pipefail
torchrun --nproc_per_node 4 train.py
