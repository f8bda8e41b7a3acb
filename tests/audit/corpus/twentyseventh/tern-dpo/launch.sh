#!/usr/bin/env bash
#SBATCH --job-name=tern
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:4
#SBATCH --time=12:00:00
source .venv/bin/activate
torchrun --standalone --nproc_per_node 4 dpo.py \
    --model meta-llama/Llama-3.2-1B-Instruct \
    --pairs pairs.jsonl --epochs 3
