#!/bin/bash
# one A10G, one run after the other
for LR in 1e-5 2e-5 5e-5; do
  python train.py \
    train.learning_rate=$LR \
    train.output_dir=out/sweep-$LR
done
