#!/bin/bash
# main run of the report
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
torchrun --standalone --nproc_per_node=8 src/train.py \
    trainer=base \
    trainer.lr=2e-5 \
    trainer.epochs=1 \
    output_dir=outputs/legal-1b-lr2e5
