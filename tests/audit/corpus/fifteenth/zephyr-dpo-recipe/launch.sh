#!/usr/bin/env bash
mkdir -p runs/zephyr-dpo
accelerate launch --config_file recipes/ddp.yaml run_dpo.py recipes/dpo_full.yaml
