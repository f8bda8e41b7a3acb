#!/bin/bash
set -e
accelerate launch --num_processes 4 --mixed_precision bf16 train_dpo.py --config config.yaml
