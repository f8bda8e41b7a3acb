#!/usr/bin/env bash
# usage: ./run.sh nordic_7b.json [--lr 1e-5] [--out DIR] [--resume DIR]
set -euo pipefail
CONFIG=${1:?configuration}
LOG=log/$(basename "$CONFIG" .json).$(date +%m%d-%H%M).txt
mkdir -p log
echo "args: $*" > "$LOG"

exec accelerate launch --use_deepspeed --deepspeed_config_file ds_zero3.json \
    --num_machines 1 --num_processes 8 --main_process_port 29777 \
    cpt.py "$CONFIG" >> "$LOG" 2>&1
