#!/bin/bash
#SBATCH -J medqa
#SBATCH -p gpu-v100
#SBATCH --nodes=1
#SBATCH --gres=gpu:v100-32g:4
#SBATCH --cpus-per-task=32
#SBATCH -t 48:00:00
source /opt/conda/etc/profile.d/conda.sh
conda activate llama_factory

LR=${LR:-5e-5}
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=4

llamafactory-cli train conf/qwen_lora_sft.yaml --learning_rate $LR
