#!/bin/bash
# all runs in bf16, H100 80GB
export PRECISION=bf16
export TOKENIZERS_PARALLELISM=false
for b in 4 16; do
  python bench.py --batch $b
done
python bench.py --batch 16 --compile
