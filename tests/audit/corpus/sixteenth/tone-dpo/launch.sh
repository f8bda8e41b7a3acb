#!/bin/bash
set -e
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 \
  dpo.py configs/tone.yaml
