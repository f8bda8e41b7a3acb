#!/bin/bash
# two A6000, bf16 (see configs/accelerate.yaml)
accelerate launch --config_file configs/accelerate.yaml train.py \
    --model HuggingFaceTB/SmolLM2-360M \
    --train-file data/smalltalk.jsonl \
    --accum 4 \
    --epochs 4 \
    --out runs/smalltalk-360m

python generate_eval.py runs/smalltalk-360m data/eval_prompts.txt
