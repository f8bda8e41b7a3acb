#!/usr/bin/env bash
set -euo pipefail
torchrun --standalone --nproc_per_node 4 -m leafnet.train "$1" --batch 128 --epochs 60
