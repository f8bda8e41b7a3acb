#!/bin/bash
#SBATCH -J peptide
#SBATCH --nodes=1 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=6
#SBATCH --mem=64G --time=10:00:00 --requeue
#SBATCH -o peptide-%j.out
set -eu
source ~/env/bin/activate
if [ -e out/last.ckpt ]; then MODE=--resume; else MODE=--fresh; fi
srun python fit.py --folder "$SCRATCH/peptides" --devices 2 "$MODE"
