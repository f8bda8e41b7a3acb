#!/usr/bin/env bash
# CI entry point. The long job has its own configuration in another repository.
set -euo pipefail
cd "$(dirname "$0")"
export CUDA_VISIBLE_DEVICES=0
trl sft --config smoke.yaml 2>&1 | tee smoke.log
python check_losses.py smoke.log
