#!/bin/bash
# 4 x A100, effective batch of 128
torchrun --standalone --nproc_per_node 4 src/train.py \
    model=pythia \
    trainer.learning_rate=1e-5 \
    trainer.epochs=1
