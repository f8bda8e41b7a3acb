#!/bin/bash
torchrun --standalone --nproc_per_node=4 train_ddp.py --data corpus.bin --rows 256 --micro 16
