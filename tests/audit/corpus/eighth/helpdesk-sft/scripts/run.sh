#!/usr/bin/env bash
# usage: scripts/run.sh configs/hda_v7.yaml
set -euo pipefail
cd "$(dirname "$0")/.."
CFG=${1:?config}
export WANDB_PROJECT=helpdesk
export TOKENIZERS_PARALLELISM=false
mkdir -p "$(python -c "import yaml,sys; print(yaml.safe_load(open('$CFG'))['train']['output_dir'])")"
exec torchrun --standalone --nproc_per_node 2 -m helpdesk.train "$CFG"
