#!/usr/bin/env bash
set -eu
for bs in 4 8 16; do
  torchrun --standalone --nproc_per_node=2 -m loomspeed.bench \
      --batch-size "$bs" --steps 60 --seq-len 1024 --compile
done
