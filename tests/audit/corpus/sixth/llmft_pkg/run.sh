#!/bin/bash
set -e
torchrun --standalone --nproc_per_node=8 -m llmft.train ${1:-conf/qwen05b.yaml}
