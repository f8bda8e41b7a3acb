#!/usr/bin/env bash
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
for lr in 5e-6 1e-5 2e-5; do
    python train.py optim.learning_rate=$lr out=outputs/mesa-lr$lr
done
