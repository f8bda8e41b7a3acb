#!/usr/bin/env bash
set -euo pipefail
python sft.py --data "${DATA:-data/faq.jsonl}" --output_dir "${OUT:-out/faq-lora}" --epochs 3 "$@"
