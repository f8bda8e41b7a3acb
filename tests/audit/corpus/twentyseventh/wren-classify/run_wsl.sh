#!/bin/bash
# Ubuntu 22.04 under WSL2, RTX 4090, repository in /mnt/c/work/wren
cd /mnt/c/work/wren
python train.py --workers 16 --epochs 4
