#!/usr/bin/env bash
set -euo pipefail
accelerate launch --config_file accelerate.yaml dpo.py pairs.jsonl --out runs/steady "$@"
