#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=src
CUDA_VISIBLE_DEVICES=0 python -m helpdesk.train configs/qwen_full.json
