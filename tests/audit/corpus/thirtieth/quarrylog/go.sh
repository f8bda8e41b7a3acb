#!/bin/sh
set -e
accelerate launch --config_file accelerate.yaml -m quarrylog.main \
    --reports data/reports --summaries data/summaries.csv \
    --warm-start /mnt/quarry/models/domain_pretrained.pt \
    --epochs 3
