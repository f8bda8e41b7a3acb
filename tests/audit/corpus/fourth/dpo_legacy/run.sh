#!/bin/bash
# one A100 80GB
CUDA_VISIBLE_DEVICES=0 python run_dpo.py --config configs/dpo_llama8b.yaml
