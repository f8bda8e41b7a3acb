#!/bin/bash
cd "$(dirname "$0")"
torchrun --standalone --nproc_per_node 2 -m summarizer.train \
  trainer.learning_rate=1e-4 \
  trainer.save_total_limit=2
