#!/usr/bin/env bash
# over night: three learning rates for the small model
set -u
source ~/venvs/hydra-sft/bin/activate    # torch 2.7.1+cu128, transformers 4.53.2, hydra-core 1.3.2, bitsandbytes 0.46
export TOKENIZERS_PARALLELISM=false

for lr in 5e-6 1e-5 2e-5; do
    python -m src.train model.name=Qwen/Qwen3-0.6B-Base trainer.lr=$lr trainer.per_device_batch_size=2 \
        || echo "lr $lr failed" >> sweep.log
done
