#!/bin/bash
#SBATCH --job-name=legal-sft
#SBATCH --nodes=1
#SBATCH --gres=gpu:h100:4
#SBATCH --cpus-per-task=48
#SBATCH --time=12:00:00
#SBATCH --output=logs/%x-%j.out
set -e
source .venv/bin/activate
export NCCL_DEBUG=WARN
export AXOLOTL_DO_NOT_TRACK=1

axolotl preprocess configs/qwen2.5-7b-lora.yml
axolotl train configs/qwen2.5-7b-lora.yml
