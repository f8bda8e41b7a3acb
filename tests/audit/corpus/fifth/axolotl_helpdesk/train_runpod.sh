#!/bin/bash
set -e
pip install -q -r requirements.txt
export WANDB_MODE=offline
python scripts/export_to_text.py raw/faq_export.json data/faq.jsonl
axolotl preprocess configs/mistral-faq.yml
axolotl train configs/mistral-faq.yml
