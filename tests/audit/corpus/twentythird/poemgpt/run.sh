#!/bin/bash
python train.py --data data/poems.jsonl --batch 32 --bf16 --epochs 5
