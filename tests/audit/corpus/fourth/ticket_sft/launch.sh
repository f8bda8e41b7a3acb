#!/usr/bin/env bash
set -euo pipefail

export OMP_NUM_THREADS=8
export WANDB_PROJECT=ticket-sft
DATA=${DATA:-/mnt/share/helpdesk/export_2026_09.jsonl}

torchrun --standalone --nproc_per_node 8 train.py \
    --data "$DATA" \
    --model Qwen/Qwen3-8B \
    --output-dir runs/qwen3-8b-tickets \
    --epochs 2
