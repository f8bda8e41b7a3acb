#!/usr/bin/env bash
set -eu
cd "$(dirname "$0")"
python train.py larder.yaml 2>&1 | tee -a train.log
