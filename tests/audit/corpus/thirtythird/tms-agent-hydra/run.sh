#!/bin/bash
# full run on the H100 box; `bash run.sh short` for 200 updates
set -e
cd "$(dirname "$0")"
if [ "$1" = "short" ]; then
  python train.py train.max_steps=200 train.log_every=5
else
  python train.py
fi
