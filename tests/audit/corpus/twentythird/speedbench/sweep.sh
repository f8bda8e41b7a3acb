#!/bin/bash
for b in 4 8 16; do
  python bench.py --data data/web.jsonl --batch $b
done
