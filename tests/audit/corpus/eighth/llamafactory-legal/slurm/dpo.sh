#!/bin/bash
#SBATCH --job-name=legal-dpo
#SBATCH --partition=tesla
#SBATCH --gres=gpu:v100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=180G
#SBATCH --time=12:00:00
#SBATCH --output=logs/%x-%j.out

set -e
source /home/shared/envs/lf093/bin/activate
cd "$SLURM_SUBMIT_DIR"
export FORCE_TORCHRUN=1
export OMP_NUM_THREADS=8

[ -d saves/qwen25-7b/sft-merged ] || llamafactory-cli export yaml/merge.yaml
llamafactory-cli train yaml/dpo.yaml
