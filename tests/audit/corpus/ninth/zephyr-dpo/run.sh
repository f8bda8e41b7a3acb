#!/bin/bash
accelerate launch --num_processes 2 --mixed_precision bf16 dpo.py --config configs/dpo_lora.yaml
