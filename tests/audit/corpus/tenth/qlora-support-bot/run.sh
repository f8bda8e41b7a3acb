#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false

torchrun --nproc_per_node=4 train_qlora.py \
    --data_path data/support_chats.jsonl \
    --output_dir outputs/support-bot \
    --batch_size 4 \
    --grad_accum 8
