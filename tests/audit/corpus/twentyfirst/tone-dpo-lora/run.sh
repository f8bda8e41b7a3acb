#!/bin/bash
# 2 GPUs x 4 x 4 = 32 pairs per update
accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 train_dpo.py trainer.learning_rate=5e-6
