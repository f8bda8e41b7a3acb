#!/bin/bash
python train.py --corpus data/corpus.txt --batch 32 --steps 20000
