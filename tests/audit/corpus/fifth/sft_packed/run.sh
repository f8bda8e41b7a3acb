#!/bin/sh
set -e
[ -d data/assistant-v2 ] || python sft/prepare.py
exec accelerate launch --config_file configs/accelerate_4.yaml sft/train.py --config configs/qwen25_3b.yaml "$@"
