#!/bin/bash
#SBATCH -p preempt
#SBATCH --requeue
#SBATCH --gres=gpu:a100:1
#SBATCH -c 18
#SBATCH -t 24:00:00
# preempt partition: jobs are killed without notice and requeued, usually 2-3 times a day
mkdir -p ckpt data
[ -f data/verse_u16.npy ] || python prepare.py
python train.py --steps 60000 --batch 64
