#!/usr/bin/env bash
# workstation: 32 cores, 4x RTX A6000
set -e
cd "$(dirname "$0")"

case "${1:-base}" in
  base)
    torchrun --standalone --nproc_per_node 4 train.py
    ;;
  small)
    torchrun --standalone --nproc_per_node 4 train.py model.name=vit_small_patch16_224
    ;;
  long)
    torchrun --standalone --nproc_per_node 4 train.py trainer.num_epochs=100 optim.lr=2e-4
    ;;
  *)
    echo "base | small | long" >&2; exit 2 ;;
esac
