#!/usr/bin/env bash
set -euo pipefail
test -f data/train.bin || python prepare.py
torchrun --standalone --nproc_per_node="${GPUS:-4}" train.py
