#!/bin/sh
# four RTX 6000 Ada; pass --resume after an interruption
exec torchrun --standalone --nproc_per_node=4 train.py "$@"
