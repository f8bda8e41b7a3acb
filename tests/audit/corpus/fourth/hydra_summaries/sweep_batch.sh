#!/usr/bin/env bash
# Which batch size is the fastest on our card?
set -e
for bs in 4 8 16 32; do
    python train.py trainer.per_device_train_batch_size=$bs trainer.num_train_epochs=1
done
python pick_batch.py /scratch/summaries/llama1b-bs*
