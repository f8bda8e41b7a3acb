#!/bin/sh
# GPUS=1 works as well, WORLD_SIZE and friends come from torchrun
exec torchrun --standalone --nproc_per_node "${GPUS:-2}" stance.py "${1:-config.json}"
