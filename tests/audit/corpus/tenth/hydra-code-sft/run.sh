#!/bin/bash
set -e
python train.py trainer.epochs=3 trainer.max_grad_norm=0.5 output_dir=outputs/code-sft-e3
