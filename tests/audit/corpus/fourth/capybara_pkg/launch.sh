#!/usr/bin/env bash
# 4 x A100 40GB
pip install -e . --quiet
torchrun --standalone --nproc_per_node=4 -m tuner.train --out runs/capybara-4b
