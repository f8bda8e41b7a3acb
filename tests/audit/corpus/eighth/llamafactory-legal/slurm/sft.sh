#!/bin/bash
#SBATCH --job-name=legal-sft
#SBATCH --partition=tesla
#SBATCH --gres=gpu:v100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=180G
#SBATCH --time=2-00:00:00
#SBATCH --output=logs/%x-%j.out

set -e
source /home/shared/envs/lf093/bin/activate
cd "$SLURM_SUBMIT_DIR"

LR=${LR:-5.0e-5}
export FORCE_TORCHRUN=1
export OMP_NUM_THREADS=8

RESUME=""
if ls saves/qwen25-7b/sft/checkpoint-* > /dev/null 2>&1; then
    RESUME="resume_from_checkpoint=$(ls -d saves/qwen25-7b/sft/checkpoint-* | sort -V | tail -n 1)"
fi

llamafactory-cli train yaml/sft.yaml --learning_rate "$LR" $RESUME
