#!/bin/bash
# one T4 16 GB
set -e
pip install -q -r requirements.txt
CUDA_VISIBLE_DEVICES=0 llamafactory-cli train linnet.yaml "$@"
