#!/usr/bin/env bash
# 4 x L40S 48GB, one node
accelerate launch --config_file ddp4.yaml dpo.py --out runs/dpo-1.7b "$@"
